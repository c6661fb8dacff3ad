"""Questions of cache_and_sharing."""

from mha.course.quiz.page import Question

QUESTIONS = (
    Question(
        "A colleague's cache stores queries, keys and values of all past words. What can be deleted without any loss?",
        right=(
            "the queries",
            "A row of the output is made from its own query. Old rows are finished, and no new row asks for them.",
        ),
        wrong=(
            (
                "the keys, because the weights of the old words are known by now",
                "The new query has never met the old keys: its weights are not known.",
            ),
            (
                "the values, because old outputs are known",
                "Each new word reads from all old values with weights of its own.",
            ),
            ("nothing", "One of the three is never read again by anybody. Which?"),
        ),
    ),
    Question(
        "A model reads a prompt of 100 words in one call, and its loss is right. Fed 50 words and then 50 words behind a cache, it "
        "is wrong in the second half only. What do you look at first?",
        right=(
            "which key the causal mask is aligned to",
            "In the first call the mask is square and both rules agree. In the second the triangle belongs to the last key.",
        ),
        wrong=(
            ("the learning rate", "The weights are the same in both runs. Only the way of reading differs."),
            ("rounding errors", "Other sums may change the last digits, never a whole half of the text."),
            (
                "whether the scores were divided by √d_k in both of the calls",
                "A wrong scale would spoil the single call as well.",
            ),
        ),
    ),
    Question(
        "A layer with 32 query heads gets 8 key heads instead of 32. What becomes four times smaller?",
        right=(
            "the cache, and the weights of W_k and W_v",
            "These belong to key heads. Everything that belongs to query heads stays.",
        ),
        wrong=(
            (
                "the number of multiplications that the scores take at each step",
                "Each of the 32 query heads still meets every key.",
            ),
            ("all weights of the layer", "W_q and W_o keep their size: the layer falls to five eighths."),
            ("the width of a head", "Heads are as wide as before. There are fewer heads of keys."),
        ),
    ),
    Question(
        "You introduce shared heads. The cache is four times smaller, yet each new word takes longer than before. Why?",
        right=(
            "the keys are copied for all query heads at every step",
            "The copy writes and reads as much as the full cache, on top of reading the small one. Fold the queries instead.",
        ),
        wrong=(
            (
                "sharing needs more multiplications, because each key meets more queries",
                "It needs as many: each query head meets each key once.",
            ),
            (
                "smaller caches are slower to read",
                "Fewer bytes take less time. Something else must read or write more.",
            ),
            ("the batch is too small", "A larger batch brings its own keys. The ratio stays."),
        ),
    ),
    Question(
        "A server reads with 64 users in one batch instead of one. Which part of a step gets a higher intensity?",
        right=(
            "the projections: all users share the weights",
            "One reading of the weights now serves 64 words. Keys and values belong to one user each.",
        ),
        wrong=(
            ("reading the cache", "64 users bring 64 queries and 64 caches: operations and bytes grow alike."),
            ("both alike", "Ask who shares what. The weights are shared, the caches are not."),
            ("none", "The weights are read once for all 64 words, so their operations per byte grow."),
        ),
    ),
    Question(
        "Why may the keys of the second layer be kept in a language model, but not in an encoder?",
        right=(
            "in the encoder a new word changes what the first layer says about the old words",
            "Then the input of the second layer changes, and its old keys are out of date. A causal mask prevents this.",
        ),
        wrong=(
            ("an encoder has no keys", "It has queries, keys and values like any layer."),
            ("an encoder does not use W_k in its second layer", "Each layer has its own W_k and uses it."),
            (
                "a cache refuses layers without a mask",
                "One layer alone may be cached without a mask. It is the stack that goes wrong.",
            ),
        ),
    ),
)
