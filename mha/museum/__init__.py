"""The fault museum: real public faults in miniature, each with the test that sees it and the mended line.

An exhibit passes its weak check (usually the shape) both broken and mended; its test tells the two apart. The page
"Fault museum" of the book is written from here.

Taught in: the page "Fault museum" and the sections "A fault from the wild" of all chapters.
"""

from mha.museum._exhibit import Exhibit
from mha.museum.cutting import CUTTING
from mha.museum.hiding import HIDING
from mha.museum.judging import JUDGING
from mha.museum.pruning import PRUNING
from mha.museum.running import RUNNING
from mha.museum.scoring import SCORING

EXHIBITS = (*CUTTING, *SCORING, *HIDING, *PRUNING, *RUNNING, *JUDGING)

__all__ = ["EXHIBITS", "Exhibit"]
