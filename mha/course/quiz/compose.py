"""Questions of compose."""

from mha.course.quiz.page import Question

QUESTIONS = (
    Question(
        "Two plain heads find the right fruits, one by color, one by taste. Why do they fail when buyers ask for prices or weights as they like?",
        right=(
            "what a head writes about a fruit is fixed, whoever asks",
            "Its values and its block of `W_o` are the same for all queries. The query only decides where it looks.",
        ),
        wrong=(
            (
                "a head of width 8 cannot hold two numbers",
                "It can: price and weight fit into two of its eight channels.",
            ),
            (
                "the softmax cannot give all weight to one fruit",
                "With large scores it comes as close as you like. Finding is not the problem, telling is.",
            ),
            (
                "they would need a larger `W_o`",
                "A larger `W_o` is still the same for every question: it cannot choose.",
            ),
        ),
    ),
    Question(
        "Somebody mixes scores after the mask and uses −1e9 for hidden ones. Nothing is NaN. What can still go wrong?",
        right=(
            "mixing weights that sum below 0 make −1e9 positive, and the hidden key wins",
            "The mixture is taken along the heads, and all heads hold −1e9 there. The leak detector sees it.",
        ),
        wrong=(
            ("nothing, −1e9 is as good as −∞", "Only as long as nothing multiplies it by a negative number."),
            (
                "rows do not sum to 1 any more",
                "The softmax comes after the first mixing, so its rows sum to 1, over the wrong keys.",
            ),
            (
                "only rows with nothing to look at suffer",
                "Every query with a later word is in danger, whether or not it can see others.",
            ),
        ),
    ),
    Question(
        "Why does the second mixing, after the softmax, need no mask?",
        right=(
            "hidden keys have weight 0 in every head",
            "Mixing is linear along the heads, at one query and one key. A mixture of zeros is 0: it cannot bring back what all heads have lost.",
        ),
        wrong=(
            (
                "because the mixed rows are normalized again",
                "They are not: mixed rows need not sum to 1, and nobody repairs that.",
            ),
            (
                "because the gates are 0 there",
                "Gates depend on one word, not on whether a pair may meet.",
            ),
            (
                "it does need one, or the future leaks",
                "Some code multiplies by the mask again; it changes nothing, because 0 stays 0.",
            ),
        ),
    ),
    Question(
        "A layer of 8 heads with width 64. A colleague says that DCMHA makes 64 free heads of it. What would you correct?",
        right=(
            "64 reads exist, but for one pair of words the mixing is base + rank 4 at most + a diagonal",
            "Rank 2 from the query and rank 2 from the key. It cannot be any 8 × 8 matrix, and it costs operations and the kernel.",
        ),
        wrong=(
            ("nothing: 8 × 8 is 64", "The 64 reads are there, but they cannot be weighted freely at every pair."),
            (
                "there are still only 8 look-ups, so it has 8 reads",
                "Each of 8 look-ups may use each of 8 transforms: 64 reads, and they are linearly independent.",
            ),
            (
                "it needs 64 key and value projections",
                "No projection is added. Weights of one head are used for values of another.",
            ),
        ),
    ),
    Question(
        "You generate text with a composed layer and an ordinary key-value cache. What is missing?",
        right=(
            "how each earlier word mixes the heads",
            "These weights come from the inputs of earlier words, which are gone. So they are kept per position, as keys are.",
        ),
        wrong=(
            (
                "nothing: keys and values hold all there is",
                "The key side of the mixing is made from the layer's input, and cannot be had back from keys.",
            ),
            (
                "the queries of earlier words",
                "Earlier queries have read already. No later word asks for them.",
            ),
            (
                "the softmax of earlier rows",
                "Each row is normalized by itself. Earlier rows do not change any more.",
            ),
        ),
    ),
    Question(
        "A talking-heads layer trains, its loss falls, its shapes fit. Which single check finds that its second mixing is computed and thrown away?",
        right=(
            "a gradient for each weight after backward",
            "What does not reach the output has none. It takes two lines and no reference.",
        ),
        wrong=(
            (
                "equality with plain attention in a new layer",
                "There both mixing matrices are the identity, and a mixing that is thrown away is equal too.",
            ),
            ("the leak detector", "The layer is perfectly causal. It only lacks a step."),
            (
                "whether rows of weights sum to 1",
                "Those that are read with do sum to 1. A correct layer may not pass this check at all.",
            ),
        ),
    ),
    Question(
        "You replace `W_q` and `W_k` of a trained composed layer by noise. What becomes of its mixing matrices?",
        right=(
            "nothing: they are made from the layer's inputs",
            "Base, collecting, spreading and gates never meet a query or a key. Only what they mix, the scores, has changed.",
        ),
        wrong=(
            (
                "they become noise, as the scores do",
                "The scores do. But the matrices are made from the inputs, before any projection.",
            ),
            (
                "only the base is left of them",
                "The base is learned and stays, and so do the parts that each word asks for.",
            ),
            (
                "the part of the query changes, the part of the key does not",
                "The names say whose word is asked, the one that looks or the one that is looked at; its vector is taken, not its query.",
            ),
        ),
    ),
)
