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
            "otherwise its last queries lose their gradient",
            "In the chapter it was the queries of the last layers. A small start or the norm before the part helps too.",
        ),
        wrong=(
            ("LayerNorm has to learn its gain first", "Its gain starts at 1, which works from the first step."),
            (
                "the optimizer needs time to estimate the right learning rate",
                "With the norm before the part the same optimizer needs no warm-up.",
            ),
        ),
    ),
)
