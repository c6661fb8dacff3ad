"""Questions of say_nothing."""

from mha.course.quiz.page import Question

QUESTIONS = (
    Question(
        "All scores of a row are −20. How much weight do five keys get under softmax, and how much beside a sink of 0?",
        right=(
            "1 under softmax, almost 0 beside the sink",
            "Softmax sees differences only: equal scores give a fifth each. The sink's 0 is far above −20 and takes all.",
        ),
        wrong=(
            (
                "almost 0 both times, because −20 is so low",
                "Softmax divides by the sum of the row, however small that is. It always hands out 1.",
            ),
            ("1 both times", "Beside a sink the sum has one more term, exp(0) = 1, and here it is by far the largest."),
            ("a sixth each, both times", "That would be a sink of −20: one more key, as good as the others."),
        ),
    ),
    Question(
        "Your fused kernel returns the read and the logsumexp of each row, not the weights. Can it serve a learned sink?",
        right=(
            "yes, with sigmoid(logsumexp − sink)",
            "The sink scales a whole read by this one number, and it needs nothing but the sum of the row.",
        ),
        wrong=(
            ("no, the weights must be changed one by one", "All weights of a row are changed by the same factor."),
            ("only if the sink is 0", "The logit of the sink is simply taken off the logsumexp, whatever it is."),
            ("yes: multiply the read by logsumexp − sink", "That is half of it. The factor is the sigmoid of this."),
        ),
    ),
    Question(
        "A trained model puts half of its weight on the first word. What happens if a window drops that word?",
        right=(
            "other words get that half",
            "The row must still sum to 1, so it goes to words that were not meant. In the chapter the loss rose, and it was back when the first word was kept.",
        ),
        wrong=(
            ("nothing, the first word says nothing", "Its value matters little. Its place in the sum matters much."),
            ("the head reads zeros", "Only a sink, a gate or an empty row does that. The rest of the row grows."),
            ("the model forgets the beginning of the text", "The first word here is the same in every text."),
        ),
    ),
    Question(
        "You add a learned sink to a model whose texts all begin with the same word. Does the weight on that word go away?",
        right=(
            "not by itself: the model may go on using the word",
            "A first word does the same job. In the chapter it kept a good part of the weight beside a sink.",
        ),
        wrong=(
            (
                "yes, the sink takes all of it",
                "It may, but nothing in the loss asks for it: both are places to read little.",
            ),
            (
                "yes, because the sink comes first in the sum of the row",
                "A sum has no order: its first term is no better than its last.",
            ),
            ("no, a sink cannot be learned", "It has a gradient wherever it takes a share of a row."),
        ),
    ),
    Question(
        "A cache keeps the first word and the last three. Word 100 arrives. At which distance does a rotary layer see the first word?",
        right=(
            "3: places are counted in the cache",
            "Four words are kept, at places 0 to 3, and the new one stands at 3. No larger distance ever occurs.",
        ),
        wrong=(
            ("100: that is where it stands", "In the text. The model may never have been trained on such a distance."),
            ("0: it was turned when it was stored", "Then it would be wrong from the first forgotten word on."),
            ("97: the window is subtracted", "Nothing is subtracted: the places are numbered anew at each word."),
        ),
    ),
)
