"""Questions of overlap."""

from mha.course.quiz.page import Question

QUESTIONS = (
    Question(
        "In MOHSA heads overlap. What do two neighboring heads have in common?",
        right=(
            "some channels of queries, keys and values",
            "The projected vectors are cut with overlap, along the channels. Every head still sees every word.",
        ),
        wrong=(
            (
                "some words: the tokens are cut into groups that overlap",
                "One survey says so. But every head of any layer sees all words anyway.",
            ),
            ("some rows of `W_o`", "Each head has rows of its own in `W_o`, more of them than before."),
            ("their attention weights", "Each head still makes weights of its own, by its own softmax."),
        ),
    ),
    Question(
        "A layer has four heads, and overlap is 2. You change what head 0 projects. Which reads can change?",
        wrong=(
            ("only that of head 0", "This is so in a plain layer. Here head 1 reads two of the changed channels."),
            ("those of all heads", "Head 2 and head 3 read no channel of head 0; only `W_o` brings them together."),
            (
                "those of heads 0, 1 and 3, because head 3 is the other neighbor",
                "The heads do not stand in a circle. Zeros stand beyond the first one.",
            ),
        ),
        right=(
            "those of heads 0 and 1",
            "Head 1 reads the two nearest channels of head 0. Nobody else does.",
        ),
    ),
    Question(
        "Your heads of 16 channels now read 24. By what are their scores divided?",
        right=(
            "by √16, in the published code",
            "A choice, not a law: the scores get somewhat larger. Who wants a fair copy must keep it.",
        ),
        wrong=(
            ("by √24, as the formula of attention says", "It would be natural. The published code keeps the old root."),
            ("by √8, the channels that came in addition", "Nobody divides by the root of what was added."),
            ("by nothing, since padding adds zeros only", "Zeros are added at the two ends only; scores still grow."),
        ),
    ),
    Question(
        "An overlapping layer beats the plain one by six points in your first run. What now?",
        right=(
            "more seeds for both, and a plain layer with wider heads",
            "One seed may have been unlucky, and what helped may have been the width, not the overlap.",
        ),
        wrong=(
            (
                "publish: six points are far more than the noise of a test set",
                "The noise of training is another one, and a test set does not show it.",
            ),
            ("train longer", "A longer run is still one run for each layer."),
            ("use a larger overlap, which must help even more", "First find out whether there is anything to enlarge."),
        ),
    ),
    Question(
        "Where is an overlap most likely to help?",
        wrong=(
            ("where texts are very long", "Then it costs most: scores and reads grow with the square of the length."),
            ("where `W_o` is missing", "Without `W_o` the layer's output would become wider than its input."),
            (
                "where few wide heads are used, because they have the most to share",
                "A head that is wide enough gains little from a few channels more.",
            ),
        ),
        right=(
            "where heads are very narrow",
            "A head of two channels cannot tell many keys apart. Two more channels change that.",
        ),
    ),
    Question(
        "What does a cache of keys and values have to store for an overlap of 8?",
        right=(
            "as much as before",
            "Keys and values are stored before they are widened; neighbors then read the same numbers.",
        ),
        wrong=(
            ("16 channels more for each head", "One could store them so, but the copies hold nothing new."),
            ("8 channels more for each head", "Nothing new is projected, so nothing new has to be kept."),
            (
                "the keys of all heads as one long vector, which no cache can hold",
                "Any cache can: it is the same size.",
            ),
        ),
    ),
)
