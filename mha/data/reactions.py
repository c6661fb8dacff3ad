"""Chemical reactions made up by a rule, so that the origin of every atom is known.

:Taught in: reading_heads.
"""

import random
import re
from typing import NamedTuple

from mha.checks import check_whole, checked

ATOM = re.compile(r"\[[^\]]*\]|Cl|Br|[A-Za-z]")
LEFT = ("C", "CC", "CCC", "CC(C)", "c1ccccc1", "Cc1ccc(cc1)", "COc1ccc(cc1)", "Clc1ccc(cc1)", "CCOC", "c1ccsc1")
RIGHT = ("C", "CC", "CCC", "C(C)C", "Cc1ccccc1", "CCO", "c1ccc(F)cc1", "C1CCCCC1", "CCOC", "Cc1ccncc1")
KINDS = {  # what goes in, what comes out, and how many atoms between the two parts go in and stay
    "amide": ("{left}C(=O)O.N{right}", "{left}C(=O)N{right}", (0, 1, 3)),
    "ester": ("{left}C(=O)O.O{right}", "{left}C(=O)O{right}", (0, 1, 3)),
    "amine": ("{left}N.Br{right}", "{left}N{right}", (0,)),
}


class Reaction(NamedTuple):
    """A reaction, and where the atoms of its product come from.

    Atoms are numbered from 0, in the order in which they are written, on each side by itself.

    :param text: the reaction in SMILES.
    :param origin: for each atom of the product, which atom of the reactants it was.
    :Taught in: reading_heads.
    """

    text: str
    origin: list[int]


@checked
def made_up(count: int, seed: int = 0) -> list[Reaction]:
    """Make up reactions in which two parts are joined and something small leaves.

    An acid and an amine give an amide (water leaves), an acid and an alcohol an ester (water again; the oxygen that
    stays is the alcohol's), an amine and a bromide a larger amine (the bromine leaves). No two are the same.

    :param count: how many reactions.
    :param seed: of the choice, at least 0; 0 unless given.
    :Raises: ValueError for a count that is not whole, below 1, or above the number of different reactions, and for a
        ``seed`` below 0: the generator would take it for its positive twin.
    :Taught in: reading_heads.
    """
    check_whole(1, count=count)
    check_whole(0, seed=seed)
    every = [(kind, left, right) for kind in KINDS for left in LEFT for right in RIGHT]
    if count > len(every):
        raise ValueError(f"count = {count}, but the parts give only {len(every)} different reactions")
    return [_joined(*one) for one in random.Random(seed).sample(every, count)]


def _joined(kind: str, left: str, right: str) -> Reaction:
    reactants, product, stay = KINDS[kind]
    before, after = len(ATOM.findall(left)), len(ATOM.findall(right))
    total = len(ATOM.findall(reactants.format(left=left, right=right)))
    middle = [before + n for n in stay]
    origin = [*range(before), *middle, *range(total - after, total)]
    return Reaction(reactants.format(left=left, right=right) + ">>" + product.format(left=left, right=right), origin)
