"""Questions of counting_cost."""

from mha.course.quiz.page import Question

QUESTIONS = (
    Question(
        "You change a layer of width 512 from 8 heads to 16 and nothing else. Which number on the bill doubles?",
        right=(
            "the exponentials of the softmax",
            "There is one for every head, query and key: H · n². The products, the weights and the cache stay as they were.",
        ),
        wrong=(
            (
                "the operations of the scores",
                "Twice as many scores, each from half as many channels: 4 · n² · d, for any H.",
            ),
            ("the parameters", "The same matrices are cut into more blocks: 4 · d²."),
            ("the bytes of the cache", "Every word keeps d numbers for keys and d for values, however they are cut."),
        ),
    ),
    Question(
        "A layer has width 1024. From which text length on do scores and reads together take more operations than "
        "the four projections?",
        right=("2048 words", "8 · n · d² = 4 · n² · d holds at n = 2 · d."),
        wrong=(
            ("1024 words", "That would be so if the two had the same factor. They have 8 and 4."),
            (
                "from the first word: one is quadratic",
                "Quadratic wins in the end. At small n the projections, with d², are far larger.",
            ),
            ("it depends on the number of heads", "Neither of the two counts contains H."),
        ),
    ),
    Question(
        "One text is being written, word by word, in 16-bit numbers. Your new card computes twice as fast and reads "
        "memory at the same speed. What becomes of the time per word?",
        right=(
            "almost nothing changes",
            "About one operation for each byte: the card waits for memory, and faster arithmetic waits faster.",
        ),
        wrong=(
            ("it halves", "It would if arithmetic were the limit, as it is when a long text is read."),
            (
                "it halves for the projections only",
                "With one text they too read each weight once and use it once.",
            ),
            ("it halves for attention only", "Scores and reads use each number of the cache once, too."),
        ),
    ),
    Question(
        "Now 256 texts are written together. Each has a cache of 8000 words. Which steps become more intense?",
        right=(
            "the projections only",
            "The weights are read once for all texts. Each text still reads a cache of its own for one query.",
        ),
        wrong=(
            ("all of them", "Nobody shares the keys of another text, so there scores and reads gain nothing."),
            ("scores and reads only", "It is the other way round: the weights are what the texts have in common."),
            (
                "none: each text does the same work as before",
                "The operations per text are the same. The bytes of the weights are not: they are read once.",
            ),
        ),
    ),
    Question(
        "A tool says that a model needs 3.0 TFLOP for 2000 words and 6.0 TFLOP for 4000. The model has 12 layers of "
        "attention. What do you conclude?",
        right=(
            "it has not counted scores and reads",
            "They grow with n². A count that exactly doubles has seen the linear layers and nothing else.",
        ),
        wrong=(
            (
                "the model uses the fused kernel, which is linear in n",
                "The kernel saves memory. It multiplies as much as before.",
            ),
            ("the model has few heads", "The number of heads does not change the operations."),
            ("at these lengths the quadratic part is too small to see", "Small is not zero: the ratio would be 2.01."),
        ),
    ),
    Question(
        "Tiled attention never stores the n × n weights. What does it pay for that?",
        right=(
            "what was read so far shrinks again whenever a larger score turns up",
            "One factor for each query and tile. The products stay the same, and so does the result, up to rounding.",
        ),
        wrong=(
            ("it is an approximation", "It is the same softmax, in another order of adding."),
            ("it computes every score twice", "The backward pass of the fused kernel does. The forward pass does not."),
            ("it needs a second pass for the sums", "The running sum is corrected on the way. One pass is enough."),
        ),
    ),
    Question(
        "Eight query heads share two heads of keys and values. One text is written word by word. What is four times "
        "smaller than with eight key heads?",
        right=(
            "the bytes of the cache that a step reads",
            "Each key is read once and used by four queries. So the intensity is about four times as high.",
        ),
        wrong=(
            ("the operations of the scores", "Every query head still compares with every key."),
            ("the weights of the layer", "W_k and W_v shrink, W_q and W_o do not: 2.5 · d² instead of 4 · d²."),
            ("the time of a step", "The cache is one part of it. Weights must be read, and calls take their time."),
        ),
    ),
)
