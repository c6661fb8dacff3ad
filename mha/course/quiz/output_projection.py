"""Questions of output_projection."""

from mha.course.quiz.page import Question

QUESTIONS = (
    Question(
        "What is W_o for, if H · d_v is already d_model?",
        right=(
            "it carries each read to the channels where it belongs",
            "Without it, head 3 could write only into the channels where its read happens to stand.",
        ),
        wrong=(
            ("it brings the joined row back to the width of the model", "The width was right before."),
            ("it compresses eight heads into one", "It is a square matrix of full rank. Nothing is compressed."),
            ("it lets words exchange information once more", "It works on one word at a time."),
        ),
    ),
    Question(
        "A block of W_o has a tiny norm. Is its head unimportant?",
        right=(
            "nobody can say from this",
            "Make W_v ten times larger and the block ten times smaller: the layer does the same.",
        ),
        wrong=(
            ("yes, since what is multiplied by little matters little", "The other factor, the read, may be large."),
            (
                "yes, unless the softmax is saturated",
                "The sharpness of the weights says nothing about the scale of the values.",
            ),
        ),
    ),
    Question(
        "You want one small matrix that says where a head reads. Which one?",
        right=("W_q W_kᵀ", "Only this product enters the scores. Its factors can be changed without anybody noticing."),
        wrong=(
            ("W_q", "Replace W_q by W_q R and W_k by W_k R⁻ᵀ: another W_q, the same layer."),
            ("W_v W_o", "This product says what is written once a word is read."),
            ("W_k W_v", "This product occurs nowhere in the formula."),
        ),
    ),
    Question(
        "A layer without W_o is tested: change the last channel of one value. What do you see?",
        right=(
            "only channels of the last head move",
            "With W_o almost every output channel moves. So the test sees that it is missing.",
        ),
        wrong=(
            (
                "every output channel moves a little",
                "That is the healthy layer: W_o spreads each read over all channels.",
            ),
            ("nothing moves", "The value is read, so some output must move."),
        ),
    ),
    Question(
        "With one head, W_o can be folded into W_v. Why not in the same way with eight heads?",
        right=(
            "each head averages with weights of its own",
            "There is one product W_v W_o for each head, each behind another average. They do not add up to one value matrix.",
        ),
        wrong=(
            ("W_o is not square then", "It is square with eight heads too."),
            ("the fold would lose the bias", "A bias can be folded as well. The averages are the reason."),
            ("it can, if the eight heads have been trained first", "Training does not turn eight averages into one."),
        ),
    ),
)
