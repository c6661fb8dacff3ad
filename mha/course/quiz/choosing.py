"""Questions of choosing."""

from mha.course.quiz.page import Question

QUESTIONS = (
    Question(
        "A new layer reaches 91.2 % and the plain one 90.4 %, one seed each. What do you know?",
        right=("next to nothing", "The same layer with another seed can move by more than 0.8 points. Repeat both."),
        wrong=(
            (
                "the new layer is better by about 0.8 points",
                "You know two numbers. Whether the gap is larger than luck, one seed cannot say.",
            ),
            ("the new layer is at least not worse", "Even the sign can turn round with the next seed."),
            ("the plain layer was not tuned", "Perhaps, perhaps not. The two numbers do not tell."),
        ),
    ),
    Question(
        "Both layers were trained with the same five seeds, and a seed fixes the data. Which interval do you look at?",
        right=(
            "that of the five differences",
            "A hard seed is hard for both. In the difference this common part is gone, and the interval gets narrow.",
        ),
        wrong=(
            (
                "those of both layers: they must not overlap",
                "Overlapping intervals can hide a difference that is there with every seed. That test is too blind.",
            ),
            ("that of the better layer", "An interval of one layer says nothing about the other one."),
            ("that of all ten numbers together", "It mixes what you want to tell apart."),
        ),
    ),
    Question(
        "You compare ten layers with plain on four tasks, 95 % intervals, and none of them differs in truth. How many "
        "of the forty intervals leave out zero?",
        right=("about two", "Each does so once in twenty times by luck. Forty of them give two “discoveries”."),
        wrong=(
            ("none", "95 % is the promise for one interval. With forty of them luck has forty tries."),
            ("about twenty", "That would be the case with 50 % intervals."),
            ("it depends on the number of seeds", "The width depends on it. The share of false alarms does not."),
        ),
    ),
    Question(
        "A composed layer beats the plain one. It has 8 % more weights and takes twice the time. What is the next run?",
        right=(
            "a plain one with as many weights, or as much time",
            "Only then you know whether the composition did it, or the size. In this chapter such a rival explained all of it.",
        ),
        wrong=(
            ("the composed one on a second task", "Useful later. The open question is what the gain comes from."),
            ("the composed one with twice the steps", "That gives the newcomer even more, and the rival nothing."),
            ("none: quality counts, whatever the size is", "Then a wider plain layer may count, too. Did you try it?"),
        ),
    ),
    Question(
        "You must decode long texts with a large batch, and memory is the limit. Which layer do you try first?",
        right=("grouped heads", "They shrink the cache itself, keep the fused kernel, and lose little quality."),
        wrong=(
            ("sparse heads: zeros need no memory", "The cache keeps every key, and the zeros are stored as numbers."),
            (
                "routed heads: half of them are idle",
                "Each head needs the keys and values of all words. The cache is full.",
            ),
            (
                "talking heads, because they recall best",
                "They write all weights down, which needs more memory, not less.",
            ),
        ),
    ),
    Question(
        "A stored table says 0.993, your own run of the same cell 0.991. The hash of the code agrees. What now?",
        right=(
            "look whether the stated tolerance allows it",
            "Another processor rounds differently, and training makes small differences grow. How far was said before.",
        ),
        wrong=(
            (
                "the table is wrong and must be made again",
                "A hash that agrees says: the same code. Rounding may differ.",
            ),
            ("write 0.991 into the table", "Then the next reader has the same question, and the table is typed."),
            ("nothing: numbers of trainings never agree", "They agree within a tolerance, or something has changed."),
        ),
    ),
)
