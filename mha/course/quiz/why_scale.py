"""Questions of why_scale."""

from mha.course.quiz.page import Question

QUESTIONS = (
    Question(
        "A model is 512 wide. It has 8 heads side by side, each like the one of chapter 01, with queries and keys of 64 "
        "channels. By what must a head divide its scores?",
        right=("√64 = 8", "A score is a sum over the channels of one head, and there are 512 / 8 = 64 of them."),
        wrong=(
            ("√512 ≈ 22.6", "No sum with 512 terms occurs. Scores become too flat: their spread is 0.35, not 1."),
            ("64", "The spread grows with the square root. Dividing by 64 makes all keys look almost the same."),
            ("8, the number of heads", "Here the number is right by accident. With 16 heads it would be √32 ≈ 5.7."),
        ),
    ),
    Question(
        "Somebody divides by √d_k after the softmax. How can a test see it?",
        right=("add up the weights of a row", "They sum to 1/√d_k instead of 1. The saturation stays as it was."),
        wrong=(
            ("look at the shape of the output", "A number that is multiplied anywhere leaves all shapes as they are."),
            (
                "check that the best key is the same",
                "Dividing before or after the softmax never changes which key is the best.",
            ),
            ("check that the weights are all positive", "Divided or not, each weight is a positive number."),
        ),
    ),
    Question(
        "You copy every channel of queries and keys three times, so that a head is four times as wide, and divide by the root of the new width. What happens to the scores?",
        right=(
            "they are twice as large",
            "The sum is four times as large, the divisor only twice. Copies are not independent.",
        ),
        wrong=(
            (
                "they stay as they are",
                "They would if the new channels were independent of the old ones. Copies are not.",
            ),
            ("they are half as large", "The divisor has doubled, but the sum has grown four times."),
            ("they are four times as large", "The sum is. The divisor has grown, too: it has doubled."),
        ),
    ),
    Question(
        "Initial scores have spread 1. After long training, one head's scores reach 200. What does dividing by √d_k do about it?",
        right=(
            "nothing more",
            "It is a fixed factor that could be folded into W_q. Training has outgrown it: think of QK-norm or a soft cap.",
        ),
        wrong=(
            (
                "it brings the spread back to 1",
                "It would, for independent entries. Trained queries and keys agree with each other.",
            ),
            (
                "it keeps the gradient alive",
                "A softmax over scores of 200 is saturated whatever constant was once divided by.",
            ),
            ("it acts as a regularizer on W_q", "A constant factor puts no price on large weights."),
        ),
    ),
    Question(
        "A checker compares the answer of a student with the right one on random numbers of size 100. Every scale passes. Why?",
        right=(
            "softmax is saturated on such numbers",
            "One key has weight 1 with any scale. Use inputs on which the scales give different answers.",
        ),
        wrong=(
            ("random numbers make weak tests", "Random numbers of size 1 tell the scales apart at once."),
            ("the tolerance is far too tight", "A tight tolerance rejects more, not less."),
            ("the scale does not matter then", "It matters for the model. It does not show on this input."),
        ),
    ),
    Question(
        "In a trained layer the variance of the scores is twelve times the sum over its channels. Which step of the derivation has failed?",
        right=(
            "the third: variances add",
            "They add for independent terms. Training has made the channels say the same.",
        ),
        wrong=(
            ("the first: a product has mean 0", "A mean moves all scores together. It does not make them spread."),
            (
                "the second: a product has variance 1",
                "The comparison already uses the variances that the channels really have.",
            ),
            ("the fourth: dividing makes the deviation 1", "Dividing does to both sides the same."),
        ),
    ),
)
