"""Questions of positions."""

from mha.course.quiz.page import Question

QUESTIONS = (
    Question(
        "A model was trained on 64 words with rotary positions and is used on 256. Every place has a code. Will it work?",
        right=(
            "not by itself: distances above 64 are new",
            "A code for each distance is not the ability to use it. A window helps.",
        ),
        wrong=(
            (
                "yes, because rotary positions have no largest place",
                "That makes the call possible. It does not make the answer right.",
            ),
            ("no, it raises an error", "Learned positions refuse. Rotary ones run, and that is the danger."),
        ),
    ),
    Question(
        "You may drop one of the four biases without any change of the output, in a plain layer without positions. Which?",
        right=("that of W_k", "It adds the same number to each score of a row, and softmax does not see it."),
        wrong=(
            ("that of W_q", "It adds to each score a number that depends on the key. That changes the weights."),
            ("that of W_v", "It comes through as a constant in the output. It can be moved to W_o, but not dropped."),
            ("that of W_o", "It is added to the output, so dropping it changes the output."),
        ),
    ),
    Question(
        "You load Llama weights. The first word is right, the others are nonsense. What do you suspect?",
        right=("rotary pairs in another layout", "At place 0 nothing is turned, so the first word does not show it."),
        wrong=(
            (
                "a missing causal mask",
                "A missing mask would harm the first word most: it has the largest future to look into.",
            ),
            ("the tokenizer, which cuts texts into words", "A wrong tokenizer spoils the first word as well."),
            ("the wrong norm", "A norm acts on each word alike, also on the first."),
        ),
    ),
    Question(
        "Which positions make the score depend on the distance of two words and not on their places?",
        right=("rotary", "Both hands are turned, and the angle between them knows only the difference."),
        wrong=(
            (
                "sinusoidal, added at the input",
                "The codes' own dot product has this property. Behind W_q and W_k it is gone.",
            ),
            ("learned, added at the input", "Each place has a free vector. Nothing ties equal distances together."),
        ),
    ),
    Question(
        "Linear bias (ALiBi) goes on reading where a text is longer than any in training. What is its price?",
        right=(
            "its bias can only prefer what is near",
            "In the chapter it could not learn to repeat the first word, which sinusoidal and rotary positions could.",
        ),
        wrong=(
            (
                "it needs one more matrix in each layer",
                "It has no weights at all: a fixed slope for each head, times the distance.",
            ),
            (
                "it cannot be used behind a cache, because distances change",
                "The new query stands at the last place, so all distances to the kept keys are known.",
            ),
        ),
    ),
)
