"""Questions of why_scale."""

from mha.course.quiz.page import Question

QUESTIONS = (
    Question(
        "A model is 512 wide and has 8 heads. By what must a head divide its scores?",
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
        "All keys of a sentence get the same vector added. What do the weights do?",
        right=("they stay as they are", "Each score of a row moves by the same number, and softmax does not see that."),
        wrong=(
            ("they get flatter", "The differences inside a row are unchanged, so it is as sharp as before."),
            (
                "all queries now prefer the same key",
                "That comes from shifting the queries. A shift of the keys cancels in each row.",
            ),
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
        "In the backward pass, dS = P ∘ (dP − rowsum(dP ∘ P)). What is each row sum of dS?",
        right=("0", "Adding a number to a whole row changes nothing, so the gradient has no part in that direction."),
        wrong=(
            ("1, like the rows of P", "P sums to one. Its gradient has to leave that sum unchanged."),
            ("the loss of that row", "The loss is not in this formula. Only its slope enters, through dP."),
            (
                "it depends on the scale √d_k",
                "The scale enters when dS is carried on to queries and keys, not in the sum.",
            ),
        ),
    ),
)
