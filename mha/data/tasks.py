"""Small tasks that need attention, made from rules, the same on every machine.

:Taught in: why_attention, why_scale, why_many_heads, output_projection.
"""

from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from mha.checks import checked

TAGS = ("PRONOUN", "DETERMINER", "NOUN", "VERB")


PRONOUNS, DETERMINERS = ("I", "we", "you"), ("a", "the")


AMBIGUOUS = ("saw", "watch", "play", "cut")  # each is a noun and a verb


WORDS = (*PRONOUNS, *DETERMINERS, *AMBIGUOUS)


@checked
def encode(sentence: str) -> Int[Tensor, "1 n"]:
    """Turn a sentence into word numbers, as a batch of one.

    :param sentence: n words of ``WORDS``, with spaces between them.
    :Shapes: returns (1, n).
    :Raises: ValueError for a word that is not in ``WORDS``.
    :Taught in: why_attention.
    """
    if not sentence.split():
        raise ValueError(f"sentence = {sentence!r}: there is no word in it")
    unknown = [word for word in sentence.split() if word not in WORDS]
    if unknown:
        raise ValueError(f"sentence has unknown words {unknown}: this small language has {list(WORDS)}")
    return torch.tensor([[WORDS.index(word) for word in sentence.split()]])


@checked
def tagging(count: int, *, generator: torch.Generator) -> tuple[Int[Tensor, "b 4"], Int[Tensor, "b 4"]]:
    """Make sentences such as ``I saw a saw`` and the part of speech of each word.

    Half of the sentences are pronoun, verb, determiner, noun; half are determiner, noun, verb, pronoun. Every noun
    and every verb comes from the same four words, so a word alone does not tell its tag.

    :param count: how many sentences, at least 1.
    :param generator: where the random numbers come from.
    :Shapes: returns words (count, 4) as indices of ``WORDS`` and tags (count, 4) as indices of ``TAGS``.
    :Raises: ValueError for a count below 1.
    :Taught in: why_attention.
    """
    if count < 1:
        raise ValueError(f"count = {count}: it must be at least 1")
    pronoun, determiner = _draw(PRONOUNS, count, generator), _draw(DETERMINERS, count, generator)
    noun, verb = _draw(AMBIGUOUS, count, generator), _draw(AMBIGUOUS, count, generator)
    first = torch.rand(count, generator=generator) < 0.5
    words = torch.stack([pronoun, verb, determiner, noun], 1)
    words = torch.where(first[:, None], words, torch.stack([determiner, noun, verb, pronoun], 1))
    tags = torch.where(first[:, None], torch.tensor([0, 3, 1, 2]), torch.tensor([1, 2, 3, 0]))
    return words, tags


@checked
def recall(
    count: int, *, generator: torch.Generator, pairs: int = 16, keys: int = 64, values: int = 16
) -> tuple[Int[Tensor, "b j"], Int[Tensor, "b j"], Int[Tensor, "b 1"], Int[Tensor, "b"]]:
    """Make look-up questions: a list of pairs of a key and a value, one of these keys, and the value it is paired with.

    The keys of a list all differ; the pairing is new in every list, so it can be looked up but not learned by heart.

    :param count: how many lists, at least 1.
    :param generator: where the random numbers come from.
    :param pairs: how many pairs a list has, at most ``keys``; 16 unless given.
    :param keys: how many different keys there are; 64 unless given.
    :param values: how many different values there are; 16 unless given.
    :Shapes: returns the list's keys and values (count, pairs), the key that is asked for (count, 1), the answers
        (count,).
    :Raises: ValueError for a count or a number of pairs below 1, or for more pairs than there are keys.
    :Taught in: why_scale.
    """
    if count < 1 or not 1 <= pairs <= keys:
        raise ValueError(f"count = {count}, pairs = {pairs}: at least 1 of each, and at most {keys} pairs (one a key)")
    listed = torch.rand(count, keys, generator=generator, dtype=torch.float64).argsort(1)[:, :pairs]
    stands_with = torch.randint(values, (count, pairs), generator=generator)
    place = torch.randint(pairs, (count, 1), generator=generator)
    return listed, stands_with, listed.gather(1, place), stands_with.gather(1, place)[:, 0]


@checked
def two_lookups(
    count: int, *, generator: torch.Generator, kinds: int = 8, together: bool = False
) -> tuple[Float[Tensor, "b 1 q"], Float[Tensor, "b n c"], Float[Tensor, "b n 1"], Float[Tensor, "b 2"]]:
    """Make market stalls and a buyer who wants two prices at once: of the red fruit, and of the sour one.

    Every fruit has a color, a taste and a price. A stall holds each color once and each taste once, newly paired.

    :param count: how many stalls, at least 1.
    :param generator: where the random numbers come from.
    :param kinds: how many colors there are, and how many tastes, at least 2; 8 unless given.
    :param together: whether a stall holds every pair of a color and a taste, and the buyer names both of each wanted
        fruit; False unless given.
    :Shapes: returns questions (count, 1, 2·kinds), or (count, 1, 4·kinds) with ``together``; labels (count, n,
        2·kinds), the color and the taste as ones among zeros; prices (count, n, 1), standard normal; the two answers
        (count, 2). There are n = kinds fruits, or kinds² with ``together``. The two wanted fruits always differ.
    :Raises: ValueError for a count below 1 or for fewer than 2 kinds.
    :Taught in: why_many_heads.
    """
    if count < 1 or kinds < 2:
        raise ValueError(f"count = {count}, kinds = {kinds}: at least 1 stall and 2 kinds of color and taste")
    fruits = kinds * kinds if together else kinds
    first, second, drawn = (
        torch.rand(count, fruits, generator=generator, dtype=torch.float64).argsort(1) for _ in range(3)
    )
    taste = first // kinds if together else second
    labels = torch.cat([F.one_hot(first % kinds, kinds), F.one_hot(taste, kinds)], -1).to(torch.get_default_dtype())
    prices = torch.randn(count, fruits, 1, generator=generator)
    stall, wanted = torch.arange(count)[:, None], drawn[:, :2]
    asked = labels[stall, wanted]
    asked = asked.flatten(1) if together else torch.cat([asked[:, 0, :kinds], asked[:, 1, kinds:]], -1)
    return asked[:, None], labels, prices, prices[stall, wanted, 0]


def _draw(words: tuple[str, ...], count: int, generator: torch.Generator) -> Tensor:
    return WORDS.index(words[0]) + torch.randint(len(words), (count,), generator=generator)


@cache
def course_text() -> str:
    """Return some 270,000 characters of English: paragraphs of this course as they were in November 2026, mixed.

    Code, formulas, tables and every character beyond ASCII are left out. The text does not change with the course, nor
    with the version of Python, so that what is learned from it is the same everywhere.

    :Taught in: output_projection, choosing.
    """
    return Path(__file__).with_name("course_text.txt").read_text("utf8").rstrip("\n")
