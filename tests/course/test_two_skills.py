"""The small model of chapter 11, before it is trained; its training is the chapter's."""

import math

import torch

from mha.course import two_skills


def test_a_chant_repeats_every_eight_characters_and_lessons_are_half_chants():
    chants = two_skills.chants(20, torch.Generator().manual_seed(0))
    assert chants.shape == (20, 33)
    assert torch.equal(chants[:, 8:], chants[:, :-8])
    lessons = two_skills.training_batch(20, torch.Generator().manual_seed(0))
    repeats = (lessons[:, 8:] == lessons[:, :-8]).all(1)
    assert repeats.tolist() == [False] * 10 + [True] * 10


def test_the_examination_is_new_english():
    known, new, _ = two_skills.characters()
    assert len(known) > 8 * len(new)
    words, start = two_skills.test_set()["English"]
    assert start == 0
    assert any(torch.equal(words[0], new[at : at + 33]) for at in range(len(new) - 32))


def test_an_untrained_model_pays_about_the_logarithm_of_its_alphabet_and_silence_changes_the_price():
    torch.manual_seed(0)
    model, letters = two_skills.make(), two_skills.characters()[2]
    paid = two_skills.loss_on(model, "chants")
    assert abs(paid - math.log(letters)) < 0.4
    assert two_skills.loss_on(model, "chants", {"decoder.0.attention": []}) != paid
    half = (paid + two_skills.loss_on(model, "English")) / 2
    assert abs(two_skills.both(model) - half) < 1e-9


def test_teaching_lowers_the_loss_and_repeats_itself_with_the_same_seed():
    def losses():
        torch.manual_seed(0)
        random = torch.Generator().manual_seed(0)
        model = two_skills.make(2, 16, 1)
        return two_skills.teach(
            model, lambda model: two_skills.losses(model, two_skills.training_batch(8, random)).mean(), 40, lr=5e-3
        )

    assert losses() == losses()
    assert losses()[-1] < losses()[0] - 0.3
