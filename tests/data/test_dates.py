"""Dates in two languages, and the numbers of their characters."""

from datetime import date, datetime

import pytest
import torch

from mha.data import dates
from mha.data.dates import FORMATS, HELD_OUT, PAD, START, STOP, Characters, pairs, write

DAY = date(2038, 12, 27)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_a_day_is_written_as_people_write_it():
    assert write(DAY, "full") == "Monday, December 27, 2038"
    assert write(DAY, "long") == "December 27, 2038"
    assert write(DAY, "medium") == "Dec 27, 2038"
    assert [write(DAY, form, "zh") for form in FORMATS] == ["2038年12月27日星期一", *["2038年12月27日"] * 2]
    assert write(DAY, "long", "fr") == "27 décembre 2038"


@pytest.mark.parametrize("language", ["qq", "", "no such language", "!"])
def test_an_unknown_language_is_refused(language):
    with pytest.raises(ValueError, match=r"language = .* is unknown here: give a code such as 'zh'"):
        write(DAY, "full", language)


@pytest.mark.parametrize("form", ["yyyy", "", "Full"])
def test_an_unknown_form_is_refused(form):
    with pytest.raises(ValueError, match="it is one of"):
        write(DAY, form)


def test_both_texts_of_a_pair_are_the_same_day_in_the_same_form():
    forms = {write(day, form): write(day, form, "zh") for form in FORMATS for day in days()}
    drawn = pairs(300, generator=generator())
    assert all(forms[english] == chinese for english, chinese in drawn if english in forms)
    assert all(("," in e.partition(" ")[0]) == ("星期" in c) for e, c in drawn), "a weekday only where it was given"
    assert {len(e.split()) for e, _ in drawn} == {3, 4}


def days():
    return [date.fromordinal(n) for n in range(dates.FIRST.toordinal(), dates.LAST.toordinal(), 400)]


def test_days_of_training_and_test_are_different_and_cover_six_hundred_years():
    def days(**how):
        drawn = pairs(3000, generator=generator(), forms=["long"], **how)
        return [datetime.strptime(english, "%B %d, %Y").toordinal() for english, _ in drawn]

    train, test = days(), days(held_out=True)
    assert {n % HELD_OUT for n in train} == set(range(1, HELD_OUT))
    assert {n % HELD_OUT for n in test} == {0}
    for drawn in (train, test):
        assert {date.fromordinal(n).year // 100 for n in drawn} == {16, 17, 18, 19, 20, 21}


def test_the_same_generator_draws_the_same_pairs():
    assert pairs(5, generator=generator(3)) == pairs(5, generator=generator(3))
    assert pairs(5, generator=generator(3)) != pairs(5, generator=generator(4))


@pytest.mark.parametrize("how", [{"count": 0}, {"count": -1}, {"count": 1, "forms": []}])
def test_nothing_to_draw_is_refused(how):
    with pytest.raises(ValueError, match="at least 1 of each"):
        pairs(**how, generator=generator())


# ---- characters


def test_texts_become_numbers_and_come_back():
    characters = Characters(["cab", "bd"])
    assert len(characters) == 3 + 4
    assert characters.encode(["ab", "d"]).tolist() == [[3, 4], [6, PAD]]
    assert characters.encode(["ab", "d"], ends=True).tolist() == [[START, 3, 4, STOP], [START, 6, STOP, PAD]]
    for ends in (False, True):
        assert characters.decode(characters.encode(["ab", "d"], ends=ends)) == ["ab", "d"]


def test_a_text_ends_at_its_first_stop_sign():
    characters = Characters(["ab"])
    assert characters.decode(torch.tensor([[3, STOP, 4, STOP], [STOP, 3, 3, 3], [3, 4, 4, 3]])) == ["a", "", "abba"]


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        (["ab", "cé"], "unknown characters \\['é'\\]"),
        (["ab", ""], "none of them empty"),
        ([], "at least one"),
    ],
)
def test_what_cannot_be_a_source_is_refused(texts, reason):
    with pytest.raises(ValueError, match=reason):
        Characters(["abc"]).encode(texts)
