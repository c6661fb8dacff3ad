"""Questions of feed_back."""

from mha.course.quiz.page import Question

QUESTIONS = (
    Question(
        "A plain language model writes a text. What does its first layer know of what its top layer made of the word before?",
        right=(
            "at most which word was written",
            "Only the chosen word comes back in, through the embedding. The vector at the top is dropped.",
        ),
        wrong=(
            (
                "everything: the model is autoregressive",
                "Autoregressive means that words come back in. The vectors above them do not.",
            ),
            (
                "everything, through the cache of keys and values",
                "The cache of the first layer holds keys and values of the first layer's own inputs.",
            ),
            (
                "what the residual connections carry back",
                "Residual connections run upward, within one word. They never lead to another word.",
            ),
        ),
    ),
    Question(
        "A plain stack of 4 layers follows a ball under cups perfectly in games of 12 swaps. What do you expect of it in games of 40?",
        right=(
            "errors, more of them late in the game",
            "Its chain from the first word to the answer has 4 links, however long the text is. What it learned for "
            "12 swaps does not carry over.",
        ),
        wrong=(
            (
                "no errors: the rule of a swap is always the same",
                "That is true of the game. But a plain stack does not apply the rule once for each swap; it has only "
                "4 layers.",
            ),
            (
                "no errors, as long as its positions are relative",
                "Relative positions help to find a word. They add no link to the chain of computations.",
            ),
            (
                "pure guessing from the first swap on",
                "The first swaps look as they did in training, and a plain stack sees nothing of what comes later.",
            ),
        ),
    ),
    Question(
        "You want to train a feedback stack of 3 layers on texts of 500 words. Which number cannot be made smaller by a larger machine?",
        right=(
            "1,500 layers, one after the other",
            "Layer 1 of a word waits for the top of the word before. Nothing in this chain can run side by side.",
        ),
        wrong=(
            (
                "3 layers, one after the other",
                "That is the plain stack, which handles all words of a layer at once.",
            ),
            (
                "500 · 500 scores in every head and every layer",
                "Both kinds compute about as many scores, and a larger machine computes more of them at once.",
            ),
            (
                "500 layers, one after the other",
                "The layers of one word also wait for each other: 3 in each step.",
            ),
        ),
    ),
    Question(
        "All layers share W_k and W_v, and read the same memories. What does that save while the model writes?",
        right=(
            "a cache for each layer but one",
            "Same memories, same projections: the keys and values are the same for all layers, so they are kept once.",
        ),
        wrong=(
            (
                "the loop over the words",
                "The loop stays: each word still needs the memory of the word before.",
            ),
            (
                "nothing: every layer asks with its own query",
                "The queries differ, but they are not kept. Keys and values are, and these agree.",
            ),
            (
                "the memories of words that are far back",
                "All earlier steps stay in the memory. Sharing makes each of them cheaper.",
            ),
        ),
    ),
    Question(
        "You add 5 to all numbers in `mixing`. What changes in the output of the stack?",
        right=(
            "nothing",
            "The weights of the mixture are a softmax, and a softmax does not notice a shift. Where the output "
            "changes, somebody has lost the softmax.",
        ),
        wrong=(
            (
                "the memories grow, and with them what is read",
                "That happens where the raw numbers are used: the fault of this chapter.",
            ),
            (
                "all levels count more equally than before",
                "For that the numbers must move toward each other. A common shift leaves all differences.",
            ),
            (
                "the top gets more weight than the input",
                "Every level was raised by the same 5.",
            ),
        ),
    ),
    Question(
        "A feedback layer with zero tables is compared with the plain causal layer of the same weights, on the same "
        "inputs as memory. They differ. Why?",
        right=(
            "the plain layer also reads the present word",
            "Memories are of earlier steps only. Put the present word into the memory and both agree to the last digit.",
        ),
        wrong=(
            (
                "tables of zeros hide the distances from the layer",
                "Zero tables add nothing to the scores. That is what makes the two comparable.",
            ),
            (
                "the memory mixes several layers",
                "Here it does not: the same inputs were given to both.",
            ),
            (
                "a feedback layer needs no causal mask",
                "True, since its memory holds no future. But that is not a difference in what is computed for one word.",
            ),
        ),
    ),
)
