"""Questions of merge_and_deepen."""

from mha.course.quiz.page import Question

QUESTIONS = (
    Question(
        "A translator of 18 layers, norm after each sum, Xavier's start, does not learn. Where do you look first?",
        right=(
            "at the decoder's gradients, sublayer by sublayer",
            "That is where it is lost: at each cross-attention by a factor of about 0.7.",
        ),
        wrong=(
            (
                "at the gradients of the encoder's first layers",
                "They have the longest way, but an encoder of this kind passes nearly everything on.",
            ),
            (
                "at the loss on the training and on the test texts",
                "It tells that nothing was learned. You know that already.",
            ),
            ("at the softmax, which may saturate", "Before training scores are small, and the weights nearly equal."),
        ),
    ),
    Question(
        "Self-attention and cross-attention add answers of the same size, and the same norm divides. Why does only one "
        "of them lose gradient?",
        right=(
            "cross-attention's answer is made of the memory",
            "Its share of the gradient goes to the encoder. What self-attention takes it gives back to the words below.",
        ),
        wrong=(
            (
                "cross-attention has no mask, so each word spreads its gradient over more keys",
                "How many keys there are changes where the gradient goes, not whether it comes down.",
            ),
            ("self-attention has no norm behind it", "Each of the sublayers has one."),
            ("the memory has another length than the target", "The factor is the same for any length."),
        ),
    ),
    Question(
        "You multiply all gradients of the first layer by 100 and train with Adam. What becomes of the model that did "
        "not learn?",
        right=(
            "nothing new: it still does not learn",
            "Adam divides each gradient by its usual size, and the factor of 100 with it. So size was not what was missing.",
        ),
        wrong=(
            ("it learns now, since the first layer gets enough", "Adam's steps do not depend on that factor."),
            (
                "it diverges, for the steps are now too large",
                "They are as large as before: Adam divides the factor out.",
            ),
            (
                "it learns, but only with a warm-up for the first steps",
                "Warm-up makes first steps small. It does not undo this factor or bring the words apart.",
            ),
        ),
    ),
    Question(
        "You replace self-attention by a running average in a language model that has no memory. What do you expect?",
        right=(
            "it gets much worse",
            "All that it knows stands in its own words, and an average cannot choose one of them.",
        ),
        wrong=(
            ("about the same quality, and faster", "That was found in translation, where the source does most of it."),
            ("it sees the future", "A running average holds no later word. It is causal by construction."),
            ("it gets worse in long texts only", "Already the word before the last cannot be told from the others."),
        ),
    ),
    Question(
        "A decoder must not say a word twice. Can merged attention learn it?",
        right=("yes, most likely", "It needs to know which words were said, and that is what an average can tell."),
        wrong=(
            ("no, it sees only the memory", "Its own words come in through the average, in every head."),
            ("no, it forgets early words", "Each word counts alike, whether it was early or late."),
            ("only with a causal mask on the average", "A running average has no later words to hide."),
        ),
    ),
    Question(
        "On your task a decoder with merged attention is as good as one with self-attention. So is a third one that "
        "sees none of its earlier words. What follows?",
        right=(
            "the task does not need self-attention",
            "Where leaving it out costs nothing, no substitute can be told from the real thing.",
        ),
        wrong=(
            ("an average is as good as self-attention", "The third decoder has no average and is as good too."),
            (
                "the three models were not trained long enough to differ",
                "They may all be right nearly always. Longer training cannot separate them then.",
            ),
            ("self-attention is never needed beside a memory", "One task says nothing of others: think of two back."),
        ),
    ),
    Question(
        "Your initializer takes a `scale` that multiplies the variance. You hand it 1/√l. How does the range depend on l?",
        right=("it falls like l^(−1/4)", "The range follows the root of the variance: the root of 1/√l."),
        wrong=(
            ("it falls like 1/√l", "That holds where the factor multiplies the range itself."),
            ("it falls like 1/l", "For that the variance would need the factor 1/l²."),
            ("it does not change with l", "It does, only more slowly than you meant."),
        ),
    ),
    Question(
        "After 1000 words, what does a merged layer keep of its own words, for one text?",
        right=("one sum for each head, and a count", "The average of 1001 words needs no more than that."),
        wrong=(
            (
                "1000 keys and values, like any attention",
                "That is the cache of self-attention. Here nobody asks for single words.",
            ),
            ("1000 values, but no keys", "There are no keys, true. But the values are already in the sum."),
            ("nothing", "Then the next average would start from one word again."),
        ),
    ),
)
