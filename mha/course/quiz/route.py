"""Questions of route."""

from mha.course.quiz.page import Question

QUESTIONS = (
    Question(
        "A query did not choose head 5. Which numbers of head 5 may the layer leave out?",
        right=(
            "the scores, weights and reads of this query",
            "They would be multiplied by 0. Everything else of head 5 may be needed by another query.",
        ),
        wrong=(
            (
                "also the key and the value that head 5 makes of this word",
                "Other queries chose head 5, and they look at this word. Without its key it is gone for them.",
            ),
            ("all of head 5", "The choice is made by each query for itself, not once for the whole text."),
            (
                "nothing: the softmax needs all heads",
                "The softmax of attention runs over keys, inside one head. Heads meet only in the sum.",
            ),
        ),
    ),
    Question(
        "You load a layer with 2 shared and 6 routed heads, choose all 6, and set the router to zero. Is it plain?",
        right=(
            "in the released units yes, in the paper's no",
            "Released gates are counted in heads, so each is 1. The paper's gates sum to 1, so each is far below it.",
        ),
        wrong=(
            ("yes: all heads work", "Working is not enough. The gates decide how much each head counts."),
            (
                "no: a router of zeros closes all gates",
                "The gates are a softmax. Equal scores of zero give equal gates, and none of them is 0.",
            ),
        ),
    ),
    Question(
        "A library has a MoH layer with half of the heads active. It runs exactly as long as plain attention. Why?",
        right=(
            "it computes all heads and multiplies half of the reads by zero",
            "The numbers are right, so no test of values sees it. Count the products, or put NaN into an idle head.",
        ),
        wrong=(
            (
                "the router costs as much as the heads it saves",
                "The router is one row of d numbers for each head: far below one percent of a long text's work.",
            ),
            (
                "half of the heads cannot be left out, because of the residual",
                "The residual is added after the heads. It does not care how many there were.",
            ),
        ),
    ),
    Question(
        "Released units, one chosen head. After 1000 steps `W_r` is what it was at the start. What happened?",
        right=(
            "its probability was divided by itself: the gate is always 1",
            "A constant has no gradient. Choose two heads, use the paper's units, or rely on the balance loss.",
        ),
        wrong=(
            ("the learning rate is too small", "A larger one times a gradient of zero is still zero."),
            (
                "choosing is not differentiable, so no router can ever learn",
                "The choice has no slope, but the gate of a chosen head does, where it is not divided away.",
            ),
            (
                "the balance loss held it fast",
                "It pulls toward even use. It does not hold: it has a gradient of its own.",
            ),
        ),
    ),
    Question(
        "All routed heads are chosen equally often. What do you know?",
        right=(
            "the balance loss has the value of even use",
            "Then the probabilities do not matter to it. Whether each choice is a good one it cannot see.",
        ),
        wrong=(
            ("the model is better", "Here it was not. Even use is a means."),
            (
                "each query uses all heads equally",
                "A query still uses the heads it chose and no others. The average over queries is even.",
            ),
            (
                "the router does not look at its input any more",
                "It may still decide sharply, a different way for each word.",
            ),
        ),
    ),
    Question(
        "Where would you expect nothing from leaving heads out?",
        right=(
            "a text of 64 words in a batch of 16",
            "Many small products in place of one large one. There the calls cost more than the work they save.",
        ),
        wrong=(
            ("a text of 4096 words", "There the n × n part rules, and half of it disappears."),
            (
                "a layer whose heads are used very evenly",
                "Evenness changes which rows are gathered, not how many: each query has as many of them.",
            ),
        ),
    ),
)
