"""Questions of compress."""

from mha.course.quiz.page import Question

QUESTIONS = (
    Question(
        "A plain layer has 8 heads of width 64 in a model of width 512 and no positions inside. How many numbers a word must it "
        "keep at most, without any loss?",
        right=(
            "512",
            "Keys and values are both made from the word, so the word itself is enough. That is half of 2 · 512.",
        ),
        wrong=(
            ("1,024", "These are all keys and values. But they are made from fewer numbers."),
            ("64", "Eight heads look at eight different parts of the word; together they need all of it."),
            ("128, one key head and one value", "That is what sharing keeps, and it changes the layer."),
        ),
    ),
    Question(
        "In the absorbed form, what does a head compare its query with?",
        right=(
            "with the latents themselves",
            "The query has passed W_k: q · (c W_k) = (q W_kᵀ) · c. Nobody makes a key.",
        ),
        wrong=(
            ("with keys that are made once and then kept", "Then the keys would fill the memory again."),
            (
                "with keys that are made anew for each query",
                "That is the expanded form, and costs W_k for every old word.",
            ),
            ("with the values", "Values are read, not compared."),
        ),
    ),
    Question(
        "Absorbing saves work when one word is written. Why not when a prompt of 4,096 words is read?",
        right=(
            "there are millions of scores, and each is longer",
            "A key is made once and used by all 4,096 queries. In the absorbed form each of them pays for the width of the latent.",
        ),
        wrong=(
            ("a prompt has no latents", "Every word has one, in both forms."),
            (
                "the result would be another one",
                "Both forms give the same numbers. Only the order of the products differs.",
            ),
            (
                "W_k cannot be absorbed where a causal mask hides scores",
                "The mask hides scores. It does not care how they were made.",
            ),
        ),
    ),
    Question(
        "Why do rotary positions get a key of their own instead of turning the keys made from the latent?",
        right=(
            "a turn between query and latent cannot be absorbed",
            "W_q, the turn and W_k would make another matrix for each distance.",
        ),
        wrong=(
            ("a latent has an odd width", "Its width is free. The turn would stand in the way all the same."),
            ("turned keys lose information", "A turn loses nothing. It only stands in an awkward place."),
            ("values must be turned as well then", "Values are never turned, whatever is done with keys."),
        ),
    ),
    Question(
        "A new program for such layers says the first word of every text as the old one does, and drifts from the second on. "
        "What do you test first?",
        right=(
            "the scale, on two words",
            "The first word sees one key. Its weight is 1 whatever the scale is, so it tests nothing.",
        ),
        wrong=(
            ("W_v and W_o", "They serve the first word too, and it is right."),
            (
                "the cache: it must be one word late",
                "Then texts read at once would be right. Test that too, but the scale first.",
            ),
            ("the rounding of the norms", "Rounding is as small at the second word as at the first."),
        ),
    ),
)
