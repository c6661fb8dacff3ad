"""Bugs in the evaluation of a model.

:Taught in: choosing.
"""

import torch

from mha.course.bugs.exhibit import Exhibit

RIGHT = torch.cat([torch.ones(700), torch.zeros(97)])  # answers, the latest ones wrong


def judge_full_batches(right, batch):
    """Evaluate in batches, and leave the last one out if it is not full."""
    batches = [part for part in right.split(batch) if len(part) == batch]
    return torch.cat(batches).mean(), sum(map(len, batches))


def judge_everything(right, batch):
    """Evaluate in batches, the last one too, however short it is."""
    batches = right.split(batch)
    return torch.cat(batches).mean(), sum(map(len, batches))


def every_answer_counts(judge):
    """All answers must be evaluated, and the size of a batch must not change the result."""
    results = [judge(RIGHT, batch) for batch in (32, 300, 512)]
    return all(count == len(RIGHT) for _, count in results) and len({share.item() for share, _ in results}) == 1


JUDGING = (
    Exhibit(
        "A test set that loses its end",
        "The same model gets better when it is evaluated in larger batches.",
        "People who count the answers that were evaluated.",
        judge_full_batches,
        judge_everything,
        every_answer_counts,
        lambda f: 0 <= f(RIGHT, 64)[0] <= 1,
        ("lss-1138/SparseTSF#3", "kwuking/TimeMixer#100"),
        "choosing#a-bug-from-the-wild-a-test-loader-that-drops-examples",
    ),
)
