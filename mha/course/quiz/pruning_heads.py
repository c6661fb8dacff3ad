"""Questions of pruning_heads."""

from mha.course.quiz.page import Question

QUESTIONS = (
    Question(
        "Each of the eight heads of a layer can be silenced at no cost. What follows for all eight together?",
        right=(
            "nothing: measure it",
            "They may be stand-ins for one another. In the chapter such a layer carried a whole skill.",
        ),
        wrong=(
            (
                "all eight can go",
                "This adds up damages that were measured while the other seven spoke. Damages do not add up.",
            ),
            (
                "at least half of them can go",
                "That depends on how many are needed to do the job. One by one, with new measurements, tells.",
            ),
            (
                "the layer is too wide and should have fewer heads",
                "A narrower layer may not have learned the job at all.",
            ),
        ),
    ),
    Question(
        "A head puts weight 1 on one key in every row. Its values W_v and their bias are zero. What does removing it change?",
        right=("nothing at all", "What it reads is zero, whatever its weights are. Its importance is zero as well."),
        wrong=(
            ("much, since it is so sure", "The weights say where it looks, not what it carries from there."),
            (
                "its importance is high, its damage is low",
                "The slope at the gate multiplies the gradient by the read, which is zero.",
            ),
        ),
    ),
    Question(
        "Importance takes the size of the slope for each example and then the mean. What goes wrong with the mean first?",
        right=(
            "a head that helps some and hurts others looks idle",
            "Its slopes have both signs and cancel, although every example notices the head.",
        ),
        wrong=(
            (
                "the result is negative",
                "Taking the size at the end makes it positive too. It is the wrong positive number.",
            ),
            (
                "the heads of different layers cannot be compared",
                "That is about the division by the layer's length, another step.",
            ),
            (
                "it needs one backward pass for each example",
                "It is the other way round: a batch mean needs only one gradient.",
            ),
        ),
    ),
    Question(
        "A mask silences half of the heads of a layer. What becomes faster?",
        right=(
            "nothing",
            "A silent head is computed and then multiplied by zero. Only a cut makes the matrices smaller.",
        ),
        wrong=(
            ("the layer: it takes half of the time", "That is what a cut does, which takes rows and columns out."),
            (
                "the softmax, but not the projections",
                "Both are computed for every head. The zero comes only after the read.",
            ),
            (
                "writing with a cache, which keeps half of the keys",
                "Keys of silent heads are made and kept like all others.",
            ),
        ),
    ),
    Question(
        "A tool reports that all 144 heads of a model can be removed one at a time without any loss. What do you do first?",
        right=(
            "silence all heads at once",
            "If the loss still does not change, the mask reaches nothing. Two public projects had this fault.",
        ),
        wrong=(
            (
                "publish it: most heads are redundant",
                "Exactly zero damage is suspicious. Even an idle head changes the last digits.",
            ),
            (
                "repeat it with other random numbers",
                "A mask that nobody reads gives zero damage for every random number.",
            ),
            (
                "remove half of them and train again",
                "Training again would hide the fault: the model never lost a head.",
            ),
        ),
    ),
    Question(
        "You keep heads 0 and 3 of a torch layer with four heads. Which part of `W_o.weight` do you keep?",
        right=(
            "the columns of heads 0 and 3",
            "A torch weight is (outputs, inputs), and the heads are the inputs of W_o.",
        ),
        wrong=(
            ("the rows of heads 0 and 3", "Rows are output channels, and every head adds to all of them."),
            (
                "all of it: only W_q, W_k and W_v shrink",
                "Then W_o waits for four heads and gets two: the shapes do not fit.",
            ),
            (
                "rows and columns of heads 0 and 3",
                "The output must stay as wide as it was, or nothing fits behind it.",
            ),
        ),
    ),
)
