"""The bug museum: real public bugs in miniature, each with the test that catches it and the mended line.

An exhibit passes its weak check (usually the shape) both broken and mended; its test tells the two apart. The page
"Bug museum" of the book is written from here.

:Taught in: the page "Bug museum" and the sections "A bug from the wild" of all chapters.
"""

from mha.course.bugs.exhibit import Exhibit
from mha.course.bugs.forgetting import FORGETTING
from mha.course.bugs.inside import INSIDE
from mha.course.bugs.judging import JUDGING
from mha.course.bugs.latent import LATENT
from mha.course.bugs.masks import MASKS
from mha.course.bugs.pruning import PRUNING
from mha.course.bugs.remembering import REMEMBERING
from mha.course.bugs.running import RUNNING
from mha.course.bugs.scoring import SCORING
from mha.course.bugs.selecting import SELECTING
from mha.course.bugs.splitting import SPLITTING

EXHIBITS = (
    *SPLITTING, *SCORING, *MASKS, *PRUNING, *RUNNING, *FORGETTING, *LATENT, *REMEMBERING, *SELECTING, *JUDGING, *INSIDE,
)  # fmt: skip


__all__ = ["EXHIBITS", "Exhibit"]
