"""Questions of across_machines."""

from mha.course.quiz.page import Question

QUESTIONS = (
    Question(
        "A layer with 8 heads runs in 4 processes. At which step does a process first need something from another one?",
        right=(
            "after its rows of `W_o`, when the output is added up",
            "Up to there it uses its own columns, its own heads and its own rows. What it has is a term of a sum.",
        ),
        wrong=(
            (
                "at the softmax, because weights are shared out among all heads",
                "Each head has a softmax of its own, over the keys. It never sees another head's scores.",
            ),
            (
                "before the scores, because a query must meet the keys of all heads",
                "A query of head 3 meets keys of head 3. These are in the same process.",
            ),
            (
                "before `W_o`, because `W_o` needs the reads of all heads side by side",
                "As one product it does. As a sum over heads each process can multiply its part alone.",
            ),
        ),
    ),
    Question(
        "Two processes agree with one on a freshly made layer, to the last digit. With trained weights the outputs of all words differ "
        "by the same vector. What is it?",
        right=(
            "the bias of `W_o`: each process added it",
            "It was zero in the fresh layer, so twice the bias was the same. The excess is the bias, p − 1 times.",
        ),
        wrong=(
            (
                "rounding: two sums are added in another order",
                "Rounding differs from word to word, and in the last digits.",
            ),
            (
                "a missing all-reduce in the forward pass of the layer",
                "Then a whole term would be missing, and it differs from word to word.",
            ),
            (
                "the bias of `W_v`, which reaches the output through every head",
                "Its parts belong to heads and are cut with them. Nothing is added twice.",
            ),
        ),
    ),
    Question(
        "Your training in two processes is right, but a counter shows three all-reduces in the backward pass of self-attention. Why?",
        right=(
            "each of `W_q`, `W_k`, `W_v` adds up the gradient of its input by itself",
            "The three inputs are one tensor. Add the three gradients at home and one message is enough.",
        ),
        wrong=(
            (
                "the gradients of `W_q`, `W_k` and `W_v` must be added up over the processes",
                "Each process has columns of its own. Their gradients are complete without a message.",
            ),
            (
                "one message for the scores, one for the softmax, one for the read",
                "These stay within a head, and so within a process.",
            ),
            (
                "three heads happen to be on another process",
                "The number of messages does not depend on how many heads a process has.",
            ),
        ),
    ),
    Question(
        "A model has 28 query heads and 4 key heads. You have 8 devices. What can you do without changing the model or copying keys?",
        right=(
            "spread the heads over 4 of the devices",
            "4 divides the key heads: each device gets one, with its 7 query heads.",
        ),
        wrong=(
            (
                "give each device 28 // 8 = 3 query heads and go on",
                "That is 24 heads. Integer division has lost four, and no error was raised.",
            ),
            (
                "spread over 7 devices, since 7 divides 28",
                "Then a key head would be needed on several devices: 4 are not divisible by 7.",
            ),
            ("use all 8, since 8 is a power of two", "Neither 28 nor 4 can be divided by 8."),
        ),
    ),
    Question(
        "With 8 devices a layer computes for 1 ms and talks for 0.5 ms. You take 64 devices with the same links. What happens?",
        right=(
            "computing falls to about 0.13 ms, and talking stays above 0.5 ms",
            "Arithmetic is shared, the bytes of the all-reduce are not: 2 (p − 1)/p of the tensor for each device.",
        ),
        wrong=(
            ("both fall by 8", "The output has the same size as before, and each device must still get all of it."),
            (
                "talking grows by 8, because each device must hear from 8 times as many others",
                "In a ring each sends pieces to one neighbor. The bytes grow by an eighth at most here.",
            ),
            (
                "neither changes, because heads are independent",
                "Independent heads are the reason why computing can be shared at all.",
            ),
        ),
    ),
    Question(
        "You replace your cards by cards that compute three times as fast, with the same links. How many devices are worth having for one layer?",
        right=(
            "fewer: the limit of the speed-up falls to a third",
            "(2d + n) · β/π has the speed in the denominator. Whoever computes faster is sooner waiting for messages.",
        ),
        wrong=(
            ("three times as many", "It is the other way round: less time of computing is left to be shared out."),
            (
                "as many as before, because the number of bytes is the same",
                "The bytes are the same, but they are compared with less computing.",
            ),
            (
                "that depends on the number of heads only",
                "Heads say how many devices are possible, not how many are worth it.",
            ),
        ),
    ),
    Question(
        "A text is written word by word on eight devices of one machine instead of one. What of a step does not become smaller?",
        right=(
            "the fixed price of a message, in every layer",
            "A sum of one row has few bytes, and still all must meet. The more devices read at once, the more this counts.",
        ),
        wrong=(
            ("the weights that a device reads", "Each device holds an eighth of them, and reads no others."),
            (
                "the cache that a device reads",
                "Each keeps the keys and values of its own key heads: an eighth, if there are eight or more.",
            ),
            ("the operations of a device", "It has an eighth of the heads, and writes its own term only."),
        ),
    ),
)
