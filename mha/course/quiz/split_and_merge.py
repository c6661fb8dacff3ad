"""Questions of split_and_merge."""

from mha.course.quiz.page import Question

QUESTIONS = (
    Question(
        "`q` has shape (2, 10, 512). Somebody writes `q.view(2, 8, 10, 64)`. What do they get?",
        right=(
            "each head holds channels of several words",
            "`view` keeps the order in memory, where all channels of a word stand together. Head 0 gets words 0 and 1, whole, and a part of the next.",
        ),
        wrong=(
            ("eight heads, as wanted", "The shape is that of eight heads. The contents are pieces of the sentence."),
            (
                "an error, since the axes are in the wrong order",
                "The number of entries fits, and that is all that `view` asks for.",
            ),
            (
                "eight heads whose words are shuffled among the sentences of the batch",
                "The batch axis is untouched, so sentences stay apart.",
            ),
        ),
    ),
    Question(
        "Your layer passes tests of shape, batch independence and causality. Which test is still needed to trust the split?",
        right=(
            "a loop over heads with copied weights",
            "View-and-view passes the three others. Only equality with the formula sees every fault.",
        ),
        wrong=(
            ("the loss falls in training", "A layer with the wrong view trains too, and solves easy tasks."),
            ("split and merge give back the input", "A wrong split with the matching wrong merge passes this test."),
            ("the number of weights is 4 · d_model²", "A wrong view has the same weights. It reads them differently."),
        ),
    ),
    Question(
        "`split_heads` is called on a tensor of a gigabyte. How much memory does the call copy?",
        right=("none", "It writes down another shape and other strides for the same numbers."),
        wrong=(
            ("one gigabyte", "`view` and `transpose` copy nothing. The merge at the end may have to."),
            (
                "an eighth of it for each head, so a gigabyte in the end",
                "No head has a memory of its own. All are views of one tensor.",
            ),
        ),
    ),
    Question(
        "Which part of a word does head 3 of 8 read?",
        right=("all of it", "Each head has a row in W_q for every input channel. The cut comes after the projection."),
        wrong=(
            (
                "the fourth eighth of its channels",
                "That is the picture of the cut word. It would make heads blind to most of the word.",
            ),
            ("it depends on the strides", "Strides say how the projected numbers are grouped, not what was projected."),
        ),
    ),
    Question(
        "After `transpose`, `view` raises an error and `reshape` does not. Why?",
        right=(
            "`reshape` copies where it must",
            "After the transposition the numbers of a word no longer stand side by side. `view` refuses to copy.",
        ),
        wrong=(
            (
                "`reshape` ignores the order of the axes",
                "It respects the order of the axes. That is why it has to copy.",
            ),
            ("`view` only works on two axes", "It works on any number of axes, where the layout allows it."),
            ("`view` needs a gradient", "Neither of the two asks for gradients."),
        ),
    ),
)
