"""Questions of why_many_heads."""

from mha.course.quiz.page import Question

QUESTIONS = (
    Question(
        "One head is too weak for a task with two look-ups. Which change helps?",
        right=("a second layer", "It looks a second time. So does a second head in the same layer."),
        wrong=(
            (
                "a head four times as wide",
                "It still takes one weighted average for each query. Width helps only where every color has a channel of its "
                "own and the question picks its price behind the head: then the look-up happens there.",
            ),
            (
                "a larger network behind the head",
                "It gets what the head brings. In the chapter's experiment that is one average, and no network takes it apart.",
            ),
            ("training ten times as long", "The error has a floor that no weights get below."),
        ),
    ),
    Question(
        "A layer gets 8 heads instead of 1, at the same d_model and with d_head = d_model / 8. How many weights has it now?",
        right=(
            "the same number",
            "Each matrix stays d_model × d_model; only its columns are read in groups.",
        ),
        wrong=(
            ("8 times as many", "That would be so if each head kept the full width d_model."),
            ("an eighth of them", "Each head has an eighth of the columns, and there are eight heads."),
        ),
    ),
    Question(
        "A sweep over the number of heads finds the best result at 2 and a much worse one at 16. What is the likely reason?",
        right=(
            "each of 16 heads is too narrow for its look-up",
            "At equal weights more heads mean fewer channels each, and a comparison needs enough channels.",
        ),
        wrong=(
            (
                "sixteen heads overfit",
                "The number of weights is the same, and the chapter's data were new at every step.",
            ),
            ("sixteen heads need sixteen times more data", "The data were unlimited. The loss stayed high anyway."),
            (
                "heads vote, and more voters disagree more often",
                "Heads do not vote. Their outputs are added, each through its own block of W_o.",
            ),
        ),
    ),
    Question(
        "Two heads of a layer start with exactly equal matrices, including their blocks of W_o. What does training do?",
        right=("it keeps them equal for ever", "Equal matrices and equal blocks give equal gradients at every step."),
        wrong=(
            (
                "it drives them apart, because different heads lower the loss",
                "A lower loss elsewhere does not help: the gradients are equal.",
            ),
            ("it switches one of them off", "Both get the same gradient. Neither can be singled out."),
        ),
    ),
    Question(
        "The four linear maps of a layer are made by copying one of them. What do you notice on random words?",
        right=(
            "nothing fails, but each word looks at itself many times too much",
            "With equal matrices for queries and keys, a word asks for what it offers. Only a look at the weights, or a "
            "search for equal parameters, shows it.",
        ),
        wrong=(
            ("the output has the wrong shape", "All four maps have the same shape, copied or not."),
            (
                "nothing at all, then or later: training drives the four apart before it matters",
                "The four get different gradients and do part. But they begin where no careful start would put them.",
            ),
        ),
    ),
)
