"""Questions of collaborate."""

from mha.course.quiz.page import Question

QUESTIONS = (
    Question(
        "You want a CollabHead layer that behaves like eight plain heads of 64 channels. What do you give it?",
        wrong=(
            (
                "512 shared channels, and mixing vectors that are one everywhere",
                "Then all heads compare in the same way, and eight heads have one opinion.",
            ),
            (
                "64 shared channels, since a plain head has 64 as well",
                "Eight plain heads have 512 channels together; 64 would be a strong compression.",
            ),
            ("nothing: training finds it", "It may find something as good, but to be equal no training is needed."),
        ),
        right=(
            "512 shared channels, and mixing vectors of 0 and 1",
            "With blocks of ones every head switches the channels of the others off: the plain layer, to the last digit.",
        ),
    ),
    Question(
        "A colleague calls CollabHead “a better way to merge the outputs of the heads”. What do you answer?",
        right=(
            "it changes how heads compare, and nothing after the softmax",
            "`W_q` and `W_k` are shared. Values, concatenation and `W_o` stay as they were.",
        ),
        wrong=(
            (
                "right: the mixing vectors take the place of `W_o`",
                "They multiply queries. `W_o` is there, in its old size.",
            ),
            (
                "right, but only where the shared width is smaller than that of all heads",
                "A smaller width makes queries and keys narrower, never the outputs.",
            ),
            ("wrong: it shares the values", "Each head keeps values of its own. Only queries and keys are shared."),
        ),
    ),
    Question(
        "You compress a layer from 512 shared channels to 128 and keep eight heads. By what are scores divided now?",
        right=(
            "by √64, as before",
            "The new factors imitate the old products of queries and keys, and those were divided by √64.",
        ),
        wrong=(
            ("by √16, the new width per head", "Then scores are twice as large, and the attention is too sharp."),
            ("by √128, the new width", "The width of the shared space does not say how large the imitated scores are."),
            ("by √512, the old width of all heads", "A plain head of 64 channels was divided by the root of its own."),
        ),
    ),
    Question(
        "The summed products of all heads hold 99 % of their energy in a third of the directions. What follows?",
        right=(
            "little: measure the loss of the compressed model",
            "The sum hides where heads differ, and even random matrices hold 87 % in a third.",
        ),
        wrong=(
            (
                "a third of the channels is enough, because one percent of energy is nothing",
                "One percent of energy is ten percent in size, and it may be the part that decides.",
            ),
            ("heads have much in common", "The sum was measured. Two heads that cancel would not show in it."),
            ("the layer was trained badly", "Large first directions are what training makes; see the figure."),
        ),
    ),
    Question(
        "Which of these grows when eight heads share all 512 channels?",
        right=(
            "the operations for the scores, eight times",
            "Every head now multiplies over 512 channels instead of its own 64.",
        ),
        wrong=(
            ("the weights of `W_q` and `W_k`, eight times", "They are as large as before: 512 × 512 each."),
            ("the cache of values, because the fused kernel is gone", "Values are untouched, and so is their cache."),
            ("nothing: mixing is free", "The mixing is nearly free. The longer dot products are not."),
        ),
    ),
    Question(
        "Why does a query bias become a content bias, while a key bias vanishes?",
        wrong=(
            (
                "the paper leaves one of the two out to save weights",
                "It could leave out the key bias anywhere: that changes no output at all.",
            ),
            ("keys are shared, and a shared bias cannot be learned", "It could be learned. It would have no effect."),
            ("mixing vectors absorb it", "They multiply. A sum cannot be absorbed by a product."),
        ),
        right=(
            "b_q · k differs between keys, q · b_k does not",
            "The softmax ignores what all keys of a row have in common. So one of the two can go, the other cannot.",
        ),
    ),
)
