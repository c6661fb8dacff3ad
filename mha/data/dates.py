"""A small translation task with real data: English dates, and the same dates in Chinese.

The forms come from Unicode's locale data (CLDR), which the library babel carries; it is imported when dates are made.

:Taught in: in_the_transformer.
"""

from collections.abc import Iterable, Sequence
from datetime import date

import torch
from jaxtyping import Int
from torch import Tensor

from mha.checks import checked, described

FORMATS = ("full", "long", "medium")  # not "short": it gives two digits of the year in English, but four in Chinese


FIRST, LAST = date(1600, 1, 1), date(2199, 12, 31)


HELD_OUT = 10  # every tenth day is kept for the test


PAD, START, STOP = 0, 1, 2


@checked
def write(day: date, form: str, language: str = "en") -> str:
    """Write a day as people write it in a language.

    :param day: the day.
    :param form: one of CLDR's four, "full", "long", "medium" or "short"; only "full" gives the day of the week.
    :param language: its code, such as "zh" or "fr"; "en" unless given.
    :Raises: ValueError for a form or a language that CLDR does not have, ImportError without babel.
    :Source: Unicode CLDR, through ``babel.dates.format_date``.
    :Taught in: in_the_transformer.
    """
    try:
        from babel import Locale, UnknownLocaleError
        from babel.dates import format_date
    except ImportError as error:
        raise ImportError("dates are written by babel, from the extra 'course': pip install babel") from error
    if form not in (*FORMATS, "short"):
        raise ValueError(f"form = {form!r}: it is one of {[*FORMATS, 'short']}")
    try:
        return format_date(day, form, Locale.parse(language))
    except (UnknownLocaleError, ValueError, TypeError) as error:
        raise ValueError(f"language = {language!r} is unknown here: give a code such as 'zh' or 'fr'") from error


@checked
def pairs(
    count: int, *, generator: torch.Generator, held_out: bool = False, forms: Sequence[str] = FORMATS,
    language: str = "zh",
) -> list[tuple[str, str]]:  # fmt: skip
    """Draw days from 1600 to 2199 and write each twice, in English and in another language, both in the same form.

    Every tenth day is held out.

    :param count: how many days.
    :param generator: where the random numbers come from.
    :param held_out: whether only held-out days are drawn, or none of them; False unless given.
    :param forms: the forms to choose from; ``FORMATS`` unless given.
    :param language: the code of the other language; "zh" unless given.
    :Raises: ValueError for a count below 1, for no form, and as :func:`write`.
    :Taught in: in_the_transformer.
    """
    if count < 1 or not forms:
        raise ValueError(f"count = {count}, forms = {list(forms)}: at least 1 of each")
    low, high = FIRST.toordinal() // HELD_OUT + 1, LAST.toordinal() // HELD_OUT
    days = HELD_OUT * torch.randint(low, high, (count,), generator=generator)
    if not held_out:
        days = days + torch.randint(1, HELD_OUT, (count,), generator=generator)
    drawn = [forms[f] for f in torch.randint(len(forms), (count,), generator=generator).tolist()]
    return [
        (write(day, form), write(day, form, language))
        for day, form in zip(map(date.fromordinal, days.tolist()), drawn, strict=True)
    ]


def check_numbers(numbers: Tensor, known: int) -> None:
    """Refuse numbers that are no character."""
    if numbers.is_meta or (numbers.numel() and not 0 <= int(numbers.min()) <= int(numbers.max()) < known):
        raise ValueError(f"numbers are {described(numbers)}, some beyond the {known} that are known: 0 to {known - 1}")


class Characters:
    """Number the characters of some texts, so that a model can read and write texts in them.

    Numbers 0, 1 and 2 are no characters: ``PAD`` pads short texts, ``START`` and ``STOP`` enclose a text.

    :Shapes: texts become (b, n) numbers, where n is the longest text with its ends.
    :Raises: ValueError for a character that was not among the texts at first, for an empty text, for no text.
    :Taught in: in_the_transformer.
    """

    @checked
    def __init__(self, texts: Iterable[str]) -> None:
        """Collect the characters.

        :param texts: those whose characters become known.
        """
        self.known = sorted(set("".join(texts)))
        self.number = {character: i for i, character in enumerate(self.known, start=STOP + 1)}

    def __len__(self) -> int:
        return STOP + 1 + len(self.known)

    @checked
    def encode(self, texts: Sequence[str], *, ends: bool = False) -> Int[Tensor, "b n"]:
        """Turn texts into numbers, padded with ``PAD``.

        :param texts: at least one, none of them empty.
        :param ends: whether START is put before each text and STOP after it; False unless given.
        :Shapes: returns (b, n).
        """
        if not texts or not all(texts):
            raise ValueError(f"texts = {list(texts)[:3]}: at least one, and none of them empty")
        unknown = sorted(set("".join(texts)) - set(self.known))
        if unknown:
            raise ValueError(f"unknown characters {unknown}: the texts these were collected from do not have them")
        rows = [[self.number[character] for character in text] for text in texts]
        rows = [[START, *row, STOP] for row in rows] if ends else rows
        return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], True, float(PAD))

    @checked
    def decode(self, numbers: Int[Tensor, "b n"]) -> list[str]:
        """Turn numbers into texts; each ends before its first STOP, and PAD and START are left out.

        :param numbers: one row for each text, (b, n).
        """
        check_numbers(numbers, len(self))
        rows = ([*row, STOP] for row in numbers.tolist())
        return ["".join(self.known[i - STOP - 1] for i in row[: row.index(STOP)] if i > STOP) for row in rows]
