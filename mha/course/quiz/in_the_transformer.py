"""Questions of in_the_transformer."""

from mha.course.quiz.page import Question

QUESTIONS = (
    Question(
        "Where do query, key and value of the decoder's second attention come from?",
        right=(
            "query from the decoder, key and value from the encoder",
            "The decoder asks, the source text answers. The read has as many rows as the query.",
        ),
        wrong=(
            (
                "query from the encoder, key and value from the decoder",
                "Then there would be one output for each source word, and the decoder needs one for each target word.",
            ),
            ("all three from the encoder", "Then the target would have no say in what is read."),
            (
                "query and key from the decoder, value from the encoder",
                "A key and its value belong to the same word. Their numbers must agree.",
            ),
        ),
    ),
    Question(
        "Source: 25 characters. Target with start and stop sign: 12. How long is the decoder's input in training?",
        right=("11", "The target without its last sign. The label is the target without its first one."),
        wrong=(
            (
                "24, one shorter than the source",
                "The length of the source plays no part. One shorter than the target it is.",
            ),
            ("12, the whole target", "The last sign has no successor to be guessed."),
            ("25, padded to the source", "Source and target need not be equally long."),
        ),
    ),
    Question(
        "A model is trained without a causal mask in the decoder. How do you notice?",
        right=(
            "let it write by itself",
            "The loss looks excellent. When it writes, there is no future to copy from, and it fails.",
        ),
        wrong=(
            (
                "the validation loss is bad",
                "The validation loss is excellent too: the label stands in the input there as well.",
            ),
            ("a shape error in the second call", "All shapes are the same with and without the mask."),
            ("the training loss stays high", "It falls faster than it should."),
        ),
    ),
    Question(
        "Should cross-attention have a causal mask?",
        right=("no", "The source text is all there from the start. Hiding parts of it only loses information."),
        wrong=(
            ("yes, a decoder must never look ahead", "It must not look ahead in the target. The source has no future."),
            (
                "yes, if source and target are equally long",
                "Equal lengths do not make source places and target places the same places.",
            ),
        ),
    ),
    Question(
        "You call `layer(W_q(x), W_k(x), W_v(x))`. What is wrong?",
        right=("everything is projected twice", "The arguments are raw inputs. The layer owns the projections."),
        wrong=(
            (
                "nothing: that is what query, key and value mean",
                "The names of the arguments say where the inputs come from. The layer makes the rest.",
            ),
            ("the order of the arguments", "The order is query, key, value."),
        ),
    ),
    Question(
        "The filling of the target gets no mask of its own. Why does that do no harm?",
        right=(
            "it stands behind the text: the causal mask hides it",
            "For every real character it is the future. Where it is a label itself, the loss leaves it out.",
        ),
        wrong=(
            (
                "filling is the number 0, so nothing is read from it",
                "0 is the number of a character like any other: it has a learned vector, a key and a value.",
            ),
            (
                "it does harm: a translation depends on who else is in the batch",
                "That is the filling of the source, which nothing else hides. It needs its mask, at calls 1 and 3.",
            ),
            (
                "the decoder never gets any filling",
                "In training it does: the rows of a batch are filled up to one length, on both sides.",
            ),
        ),
    ),
)
