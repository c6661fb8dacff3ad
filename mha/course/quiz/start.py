"""Questions before the course: can you start with the first chapter, and where to begin if not."""

from mha.course.quiz.page import Question

QUESTIONS = (
    Question(
        "`A` has shape (3, 4) and `B` has shape (5, 4). Which product exists?",
        right=(
            "A · Bᵀ, of shape (3, 5)",
            "Rows of length 4 meet rows of length 4. This is the product that compares queries with keys.",
        ),
        wrong=(
            (
                "A · B, of shape (3, 4)",
                "The inner sizes would be 4 and 5. Look up the matrix product before the first chapter.",
            ),
            (
                "Aᵀ · B, of shape (4, 4)",
                "The inner sizes would be 3 and 5. Look up the matrix product before the first chapter.",
            ),
            ("none of them", "Transpose one of the two, and it fits."),
        ),
    ),
    Question(
        "What is the dot product of (1, 0, 2) and (3, 5, −1)?",
        right=("1", "1·3 + 0·5 + 2·(−1) = 1. You need no more than this in the first chapter."),
        wrong=(
            ("(3, 0, −2)", "These are the three products. The dot product adds them up."),
            ("10", "That is the sum of all the entries. Multiply entry by entry first."),
        ),
    ),
    Question(
        "A row of weights is (0.5, 0.3, 0.2) and three values are 10, 20 and 30. What is the weighted average?",
        right=("17", "5 + 6 + 6. Attention does this for each word, with weights it computes."),
        wrong=(
            ("20", "That is the plain average, which ignores the weights."),
            ("60", "That is the sum of the values. Multiply each with its weight."),
        ),
    ),
    Question(
        "What does `[sum(row) for row in [[1, 2], [3, 4]]]` give?",
        right=("[3, 7]", "A list with one entry for each row. The first chapters are written in this kind of Python."),
        wrong=(
            ("10", "That would be the sum of all entries. The brackets make a list, with one sum for each row."),
            ("[4, 6]", "These are the sums of the columns. `row` is one inner list at a time."),
        ),
    ),
    Question(
        "Independent numbers with mean 0 and variance 1: what is the variance of the sum of 64 of them?",
        right=("64", "Variances of independent numbers add up. Chapter 02 builds on this one fact."),
        wrong=(
            ("8", "That is the standard deviation, the root of the variance."),
            ("1", "Only an average divided by 8 would have variance 1."),
            ("4096", "That would be so for 64 copies of one and the same number."),
        ),
    ),
    Question(
        "A loss falls when a weight grows a little. Which sign has its derivative, and what does a training step do?",
        right=(
            "negative; the step makes the weight larger",
            "A step goes against the derivative. From the second chapter on, you should know this.",
        ),
        wrong=(
            ("positive; the step makes the weight larger", "Falling means a negative derivative."),
            ("negative; the step makes the weight smaller", "A step against a negative number is a step upward."),
        ),
    ),
    Question(
        "`x` has shape (2, 3, 4). What is the shape of `x.reshape(2, 12)[0]`?",
        right=(
            "(12,)",
            "The last two axes become one, and `[0]` takes the first row. Chapter 05 takes `reshape` apart.",
        ),
        wrong=(
            ("(2, 12)", "`[0]` removes the first axis."),
            ("(3, 4)", "After the reshape these two axes are one."),
        ),
    ),
)
