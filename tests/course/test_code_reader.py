"""The small model of chapter 10, before it is trained; its training is the chapter's."""

import math

import torch

from mha.course import code_reader
from mha.data import python_source


def test_the_examination_is_the_same_every_time_and_holds_no_lesson():
    python, names, repeat = code_reader.test_set()
    assert python.shape == repeat.shape == (100, 64)
    assert names.shape == (100, 64, 64)
    assert int(names.sum()) > 0
    again = code_reader.test_set.__wrapped__()
    assert torch.equal(again.python, python)
    assert torch.equal(again.repeat, repeat)


def test_an_untrained_model_pays_about_the_logarithm_of_its_vocabulary():
    torch.manual_seed(0)
    model = code_reader.small_model(50, 16, 2)
    paid = code_reader.token_losses(model, torch.randint(50, (30, 20)))
    assert paid.shape == (30, 19)
    assert abs(paid.mean().item() - math.log(50)) < 0.4


def test_fitting_lowers_what_the_model_pays_and_repeats_itself_with_the_same_seed():
    def paid():
        torch.manual_seed(0)
        model = code_reader.small_model(5, 16, 2)
        code_reader.fit(model, lambda random: torch.arange(20).repeat(4, 1) % 5, 0, steps=30)
        return code_reader.token_losses(model, torch.arange(20)[None] % 5).mean().item()

    assert paid() == paid() < 0.5 * math.log(5)


def test_lessons_and_examination_are_large_enough():
    assert len(code_reader.training_code().tokens) > 80_000
    unseen = python_source.course_code("test")
    assert len(python_source.numbered(unseen, like=code_reader.training_code()).tokens) > 15_000
