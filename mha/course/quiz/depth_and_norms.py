"""Questions of depth_and_norms."""

from mha.course.quiz.page import Question

QUESTIONS = (
    Question(
        "Stack many attention layers, without residuals, without norms. What becomes of the words?",
        right=("they become alike", "Each output is an average of the words, and averages of averages run together."),
        wrong=(
            ("they grow without bound", "Averages do not grow. Only the value matrix could do that."),
            (
                "each keeps its own meaning, because softmax is sharp",
                "Even sharp weights are averages, and after a few layers little difference is left.",
            ),
            (
                "nothing, if there is a causal mask",
                "A causal mask slows it to about a half in each layer. It does not stop it.",
            ),
        ),
    ),
    Question(
        "Why does a deep model with the norm after the sum need warm-up?",
        right=(
            "otherwise its first steps drive the words together",
            "Five large steps were enough in the chapter. Then the last queries have no gradient, and it stays like that.",
        ),
        wrong=(
            ("LayerNorm has to learn its gain first", "Its gain starts at 1, which works from the first step."),
            (
                "the optimizer needs time to estimate the right learning rate",
                "With the norm before the part the same optimizer needs no warm-up.",
            ),
        ),
    ),
    Question(
        "What does the sum around a part, `x + part(x)`, do to words that become alike?",
        right=(
            "it slows it",
            "The words pass beside the average. Without a norm before the part they still come closer.",
        ),
        wrong=(
            (
                "it prevents it, whatever norm stands beside it",
                "With the norm after the sum, forty layers left next to nothing of the difference between the words.",
            ),
            ("nothing: only the norm helps", "A norm alone sets the length of a word. It does not keep words apart."),
        ),
    ),
    Question(
        "Somebody writes `x = norm(x)` and then `return x + part(x)`. He wants the norm before the part. What has he built?",
        right=(
            "a layer whose sum carries the normed word",
            "A part that says nothing must return its input. This one does not, and words become alike as with the norm after.",
        ),
        wrong=(
            (
                "the norm before the part, in two lines instead of one",
                "There the sum carries the word itself: `x + part(norm(x))`. Here the word is lost in the first line.",
            ),
            ("a layer that cannot be trained at all", "It trains. That is why the fault stays so long unseen."),
        ),
    ),
    Question(
        "RMSNorm in place of LayerNorm: what is left out?",
        right=(
            "the mean and the shift",
            "The word is divided by its size and multiplied by a gain. That is half the weights.",
        ),
        wrong=(
            ("the division by the size", "This is just what it keeps, so that large words cannot drown the others."),
            ("the gain of each channel", "It keeps the gain: one learned number for each channel."),
            ("nothing, it is another name", "Subtract the mean first, and the two agree. Without it they differ."),
        ),
    ),
)
