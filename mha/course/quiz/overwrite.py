"""Questions of overwrite."""

from mha.course.quiz.page import Question

QUESTIONS = (
    Question(
        "A head of width 64 keeps a state of 64 × 64 numbers. From how many words on is a cache of keys and values larger?",
        right=(
            "from 33 words on",
            "A cache keeps 2 · 64 numbers a word: 32 words are 4,096 numbers, as many as 64 × 64.",
        ),
        wrong=(
            ("from 4,097 words on", "That would be one number a word. A cache keeps a key and a value, 128 numbers."),
            ("from 65 words on", "A key alone has 64 numbers a word, and there is a value beside it."),
            ("never", "The state has one size for every length; a cache grows without end."),
        ),
    ),
    Question(
        "A key is written four times, with four values, into a table to which everything is added. What does it read?",
        right=("the sum of the four values", "Adding corrects nothing. All four are there, equally strong."),
        wrong=(
            ("the last value", "Only a rule that erases what the key reads, or a decay, brings the last one forward."),
            ("the first value, because the row is taken", "The table has no order: four products were added."),
            ("the mean of the four", "Nothing was divided. With a division by the sum of the weights it would be so."),
        ),
    ),
    Question(
        "Plain decay, α = 0.9, also returns the last value of a key. What does the delta rule do that it does not?",
        right=(
            "it keeps what was written under other keys",
            "Decay lowers everything by age: 28 words later 5 % was left, with the delta rule 58 %.",
        ),
        wrong=(
            ("it needs no second product", "It needs one more: what the key reads must be found first."),
            (
                "it never loses anything that was written once",
                "Keys that are not orthogonal take something from each other at every word.",
            ),
            ("it can be trained", "Both can: each form is made of products."),
        ),
    ),
    Question(
        "Why must keys have length 1 where the delta rule erases?",
        right=(
            "a longer key erases more than there is",
            "Along the key the table is multiplied by 1 − β|k|². Beyond |k|² = 2 this grows at every word.",
        ),
        wrong=(
            ("so that scores stay below 1", "Scores may have any size; nothing here goes through a softmax."),
            ("so that keys are orthogonal", "Random keys of length 1 are not, and this is why the table forgets."),
            ("so that the rates α and β lie between 0 and 1", "They are the sigmoids of something else."),
        ),
    ),
    Question(
        "A chunked implementation makes NaN, but only with strong decay, and perhaps only in the backward pass. Where do you look?",
        right=(
            "at an exponential that is taken before the mask",
            "Above the diagonal the exponent is positive and overflows. 0 · inf is NaN, in the product or in its gradient.",
        ),
        wrong=(
            ("at a division by the sum of the weights", "The delta rule divides by nothing."),
            ("at the learning rate", "Lower steps would only make the decay grow strong later."),
            ("at the keys: they are longer than 1", "Then the numbers grow at every word, with or without decay."),
        ),
    ),
)
