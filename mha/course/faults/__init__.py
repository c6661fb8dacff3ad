"""The fault museum: real public faults in miniature, each with the test that sees it and the mended line.

An exhibit passes its weak check (usually the shape) both broken and mended; its test tells the two apart. The page
"Fault museum" of the book is written from here.

:Taught in: the page "Fault museum" and the sections "A fault from the wild" of all chapters.
"""

from mha.course.faults.exhibit import Exhibit
from mha.course.faults.forgetting import FORGETTING
from mha.course.faults.judging import JUDGING
from mha.course.faults.latent import LATENT
from mha.course.faults.masks import MASKS
from mha.course.faults.pruning import PRUNING
from mha.course.faults.remembering import REMEMBERING
from mha.course.faults.running import RUNNING
from mha.course.faults.scoring import SCORING
from mha.course.faults.splitting import SPLITTING

EXHIBITS = (*SPLITTING, *SCORING, *MASKS, *PRUNING, *RUNNING, *FORGETTING, *LATENT, *REMEMBERING, *JUDGING)


__all__ = ["EXHIBITS", "Exhibit"]
