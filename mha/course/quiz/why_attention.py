"""Questions of why_attention."""

from mha.course.quiz.page import Question

QUESTIONS = (
    Question(
        "In a trained head, `river` takes a weight of 0.7 from `bank`. What does `bank` take from `river`?",
        right=(
            "any weight at all",
            "The query of `bank` meets the key of `river`: other numbers. Nothing ties the two weights to each other.",
        ),
        wrong=(
            (
                "0.7, because similarity goes both ways",
                "A score is no similarity. It is one word's query against another's key.",
            ),
            (
                "0.3, because weights sum to one",
                "Weights sum to one along a row: over everything that one word looks at.",
            ),
        ),
    ),
    Question(
        "A layer prints weights whose columns sum to one, while the rows do not. What has happened?",
        right=(
            "the softmax ran over the queries",
            "A row belongs to one query, and its weights must sum to one over the keys: the last axis.",
        ),
        wrong=(
            (
                "nothing, both are averages of the values",
                "An output is a sum along a row. Rows that do not sum to one are no averages.",
            ),
            (
                "the division by √d_k was forgotten",
                "A missing division changes how sharp the weights are, not the axis along which they sum to one.",
            ),
            ("queries and keys have different widths", "Then the product of queries and keys would not run at all."),
        ),
    ),
    Question(
        "A tagger without positions must tell the two `saw` in `I saw a saw` apart. You give it ten more layers of "
        "attention. What changes?",
        right=(
            "nothing",
            "Equal rows in, equal rows out. This holds for each layer, so it holds for any number of them.",
        ),
        wrong=(
            (
                "it can work now, since later layers see the context",
                "Both `saw` see the same context with the same weights, in every layer.",
            ),
            ("it can work with enough training data", "No weights exist that do it, so no training can find them."),
        ),
    ),
    Question(
        "Queries and keys are 64 wide, values 128, and there are 10 words. Which shape has the result of one head?",
        right=(
            "10 × 128",
            "The weights are 10 × 10 and average the rows of the values, so the width is that of the values.",
        ),
        wrong=(
            ("10 × 64", "64 is the width that queries and keys share. It disappears in their product."),
            ("10 × 10", "That is the shape of the weights, before they read the values."),
            ("10 × 192", "Nothing is put side by side inside a head."),
        ),
    ),
    Question(
        "Somebody multiplies every key of a sentence by 3. Which outputs change?",
        right=(
            "in general all: the weights get sharper",
            "Scores become three times as large, and softmax favors the largest more strongly.",
        ),
        wrong=(
            (
                "none, because softmax removes a common factor",
                "It removes a common summand. A factor changes the differences between the scores.",
            ),
            (
                "all, and each becomes three times as large",
                "Values are not touched. The outputs are still averages of the same values.",
            ),
            ("only the word with the largest key", "Every score of every row has a key in it."),
        ),
    ),
    Question(
        "Why are three matrices made from the word, and not the word itself compared with the others?",
        right=(
            "so that a word can ask for something it is not",
            "Without them, a word of given length fits best with itself, and the scores are symmetric.",
        ),
        wrong=(
            (
                "because a dot product needs three arguments",
                "A dot product has two. The value is not part of the score.",
            ),
            (
                "so that the model has enough weights to overfit the training text",
                "The number of weights is not the point: with hand-written matrices and no training the effect is the same.",
            ),
            (
                "to keep the outputs between 0 and 1",
                "The weights lie between 0 and 1. Outputs are averages of values, which may be any numbers.",
            ),
        ),
    ),
)
