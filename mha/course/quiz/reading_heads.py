"""Questions of reading_heads."""

from mha.course.quiz.page import Question

QUESTIONS = (
    Question(
        "A head puts its largest weight on the subject of the verb in 60 % of all sentences. In the same language the "
        "subject stands two words before the verb in 58 % of them. What have you shown?",
        right=(
            "next to nothing yet",
            "Always looking two words back gives 58 %. Two points more may be chance. Look at sentences where the two differ.",
        ),
        wrong=(
            ("a head that has learned the subject", "A head without any idea of subjects would score almost the same."),
            (
                "that the head looks two words back",
                "That is as unproven. Test it where the subject stands elsewhere.",
            ),
            (
                "that 60 % is too low for any claim",
                "60 % against a null of 10 % would be much. The null decides, not the number.",
            ),
        ),
    ),
    Question(
        "You remove one of four induction heads, and the model is nearly as good as before. Which conclusion holds?",
        right=(
            "the others can do without this one",
            "That is what the test did: one head gone, the others there. It says nothing about losing several.",
        ),
        wrong=(
            ("the head does no induction", "Its score says what it does. Others do the same."),
            (
                "induction does not matter for this model",
                "Remove all four and see. In the chapter the damage is many times the sum.",
            ),
            ("any two of the four can go as well", "Damages do not add up. It must be tested."),
        ),
    ),
    Question(
        "A model with one layer is trained on texts that repeat. Why does no head of it do induction?",
        right=(
            "the key of a word knows nothing of the word before it",
            "To be found as `the word after a copy`, the key must carry the word before. A head of an earlier layer writes it there.",
        ),
        wrong=(
            (
                "it has too few heads",
                "More heads in the same layer read the same keys. None of them knows its neighbor.",
            ),
            ("the causal mask hides the earlier copy", "The earlier copy stands in the past and is visible."),
            (
                "it was trained too short",
                "The loss stays high however long it trains: a look-up is missing that needs two steps.",
            ),
        ),
    ),
    Question(
        "Two heads look at the same words on every text. What can still be different?",
        right=(
            "what they carry away",
            "Each has values and a block of W_o of its own. Weights say from where, not what.",
        ),
        wrong=(
            (
                "nothing, one of them is redundant",
                "In the chapter four such heads read different things, and losing all hurts far more than the sum.",
            ),
            ("their entropy", "Equal weights have equal entropies."),
            ("their distance", "It is computed from the weights alone."),
        ),
    ),
    Question(
        "In a picture one head has very thick lines. You replace its weights by even ones, and the loss stays the same. "
        "Which sentence is right?",
        right=(
            "where this head looks does not matter on these texts",
            "Flattening keeps the head but takes its choice away. On other texts the choice may matter.",
        ),
        wrong=(
            (
                "the head can be deleted from the model",
                "Its even average may still be needed. Removing is another test, and other texts another.",
            ),
            ("the picture was drawn wrongly", "It shows the weights. It does not show what they are good for."),
            ("thick lines never mean anything", "Often they do. They are a hint, and the test decides."),
        ),
    ),
    Question(
        "A detector gives every head of every model a score near 1 for your rule. What do you check first?",
        right=(
            "how many keys the rule allows",
            "A rule that allows almost everything is met by everybody. An untrained head scores the same, and the null shows it.",
        ),
        wrong=(
            ("whether the model is large enough", "A score that an untrained head gets says nothing about any model."),
            ("whether the texts are long enough", "Longer texts do not make a generous rule strict."),
            ("nothing, all heads do this job", "Then an untrained one does it too. It has learned nothing."),
        ),
    ),
)
