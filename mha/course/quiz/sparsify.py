"""Questions of sparsify."""

from mha.course.quiz.page import Question

QUESTIONS = (
    Question(
        "A head has α = 1.5. Its best key has score 4, another key has score 1.9. What is the other key's weight?",
        right=(
            "exactly 0",
            "It is 2.1 behind, and at α = 1.5 a gap of 1/(α − 1) = 2 is enough, whatever else is there.",
        ),
        wrong=(
            ("small, but above 0", "That is softmax's answer. Here a threshold cuts off what lies below it."),
            ("it depends on the number type", "Softmax's rounding does. The threshold is a rule of the formula."),
            ("0 only if no third key is near", "More keys push the threshold up, never down. It stays out."),
        ),
    ),
    Question(
        "You set α to 1 for all heads in a program that calls the library's `entmax_bisect`. The model trains badly. Why?",
        right=(
            "all keys get equal weights",
            "The power 1/(α − 1) has no meaning at α = 1, and the code returns a uniform row instead of softmax.",
        ),
        wrong=(
            ("softmax is worse than sparse weights", "You did not get softmax. Test that α = 1 equals softmax first."),
            ("the weights are NaN", "NaN would stop the training at once. Here the numbers look healthy."),
            ("α cannot be learned at 1", "Here α is fixed, and a fixed 1 should still be softmax."),
        ),
    ),
    Question(
        "A model with softmax was trained on lists of 16 and fails on lists of 256. Which test tells sharpness from zeros?",
        right=(
            "multiply its scores by ln 256 / ln 16",
            "It makes softmax sharper without a single zero. In the chapter that alone repaired the model.",
        ),
        wrong=(
            ("train a model with α-entmax", "If it succeeds you know that it works, not whether the zeros did it."),
            ("count the weights below 0.01", "Small weights are not the question. 255 small ones can add up to half."),
            (
                "use float16, where softmax has zeros",
                "Rounding to zero needs a gap of 17. It hardly occurs, and says nothing.",
            ),
        ),
    ),
    Question(
        "In the first step of training a key that the head will need has weight 0 for every query of the batch. What happens to its score?",
        right=(
            "nothing, until another batch gives it weight",
            "Its gradient is exactly 0. Only changes elsewhere, or other inputs, can bring it back.",
        ),
        wrong=(
            (
                "it rises, because the loss wants it",
                "The loss cannot tell: a tiny change of the score changes no weight.",
            ),
            (
                "it rises slowly, as under softmax",
                "Softmax leaves every key a little weight, and so a little gradient.",
            ),
            ("it falls further", "A gradient of 0 moves it in no direction."),
        ),
    ),
    Question(
        "Four of five weights of a trained α-entmax layer are 0. How much faster is it in plain PyTorch?",
        right=(
            "not at all; it is slower",
            "The product multiplies by zeros as by any number, and the search for thresholds comes on top.",
        ),
        wrong=(
            ("five times", "Only a kernel that skips blocks of zeros could come near that."),
            ("it needs a fifth of the memory", "The zeros are stored like other numbers, and the scores are too."),
            ("as fast as before", "The fused kernel knows no α-entmax, so all scores are written down."),
        ),
    ),
    Question(
        "Padding is hidden by multiplying the finished weights with the mask and dividing each row by its sum. For softmax this is right. For α-entmax?",
        right=(
            "wrong: the threshold was found with the padding",
            "Hidden words have pushed the threshold up and cost other words their place. Hide scores before.",
        ),
        wrong=(
            ("right as well, the rows sum to 1", "They do, but words that lost their place to padding stay at zero."),
            ("right if α is the same in all heads", "The fault is in each single row. Other heads have no part in it."),
            ("wrong, because the sum may be 0", "That can happen too. Yet the weights are wrong where it is not 0."),
        ),
    ),
)
