"""Questions of masking."""

from mha.course.quiz.page import Question

QUESTIONS = (
    Question(
        "You set the weights of the future to zero after the softmax. What can still leak?",
        right=(
            "how well future keys match",
            "The softmax divided by a sum in which the future took part. The missing share tells about it.",
        ),
        wrong=(
            (
                "nothing, since zero times anything is zero",
                "The values are gone. But the remaining weights were already divided by the full sum.",
            ),
            ("the values of the future", "A weight of zero hides the value. The score is what comes through."),
        ),
    ),
    Question(
        "A model guesses the next word of random text, and its training loss falls below the entropy of the text. What do you do?",
        right=(
            "look for a leak",
            "Nobody can guess random words better than chance. The model reads its answers somewhere.",
        ),
        wrong=(
            ("celebrate: the model generalizes", "There is nothing in random text to generalize from."),
            ("lower the learning rate", "The loss is not unstable. It is impossible."),
            ("make the model smaller, because it overfits", "Fresh random text cannot be learned by heart."),
        ),
    ),
    Question(
        "A batch of 7 sentences of 7 words is handed over with a padding mask of shape (7, 7). What happens?",
        right=(
            "it is read as (query, key), and nobody notices",
            "The shape fits by accident. A mask for padding should have four axes: (b, 1, 1, j).",
        ),
        wrong=(
            ("an error, because a mask has four axes", "Libraries accept two axes and mean (query, key) by it."),
            (
                "it works: each sentence gets its own row",
                "No axis of this mask is a batch axis. Sentence 3 gets all seven rows.",
            ),
        ),
    ),
    Question(
        "Beside attention, a model has parts that work on each word alone: matrices, small networks, a rescaling of the "
        "word's channels. Which parts need the causal mask, so that early words do not change when later words arrive?",
        right=(
            "only attention",
            "The other parts never see a second word. Only attention mixes words.",
        ),
        wrong=(
            ("attention and the rescaling", "It averages over the channels of one word, not over words."),
            ("attention and the small networks", "Such a network sees one word at a time."),
            (
                "all of them, since information travels through all of them",
                "It does, but each of the others carries a word along its own place.",
            ),
        ),
    ),
    Question(
        "A row of the mask shows nothing at all. What should the layer return for that query?",
        right=(
            "zeros, before W_o and its bias",
            "There is nothing to average. A NaN spreads, and a uniform average reads what was forbidden.",
        ),
        wrong=(
            (
                "the average of all values",
                "That is what a fill value of −1e9 gives: a read of everything that was hidden.",
            ),
            ("NaN, so that the user is warned", "A NaN in the padding reaches the gradients of all weights."),
            (
                "the value of the query's own word, as a fallback",
                "The mask hides that word too. A layer should not overrule its mask.",
            ),
        ),
    ),
    Question(
        "There are 2 new queries and 6 keys, 4 of them from a cache. What may the first of the two queries see?",
        right=("5 keys", "The last query stands at the last key. The first stands one place before it."),
        wrong=(
            ("1 key", "That is the triangle in the upper left corner, a known trap: it forgets the cache."),
            ("4 keys", "It may see the whole cache, and also itself."),
            ("6 keys", "The sixth key belongs to the second query: the future of the first."),
        ),
    ),
)
