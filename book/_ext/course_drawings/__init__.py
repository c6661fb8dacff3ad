"""The drawings: those named like a chapter stand at its beginning, others beside a formula or a paragraph.

Numbers in them are computed here, from the running example.
"""

from course_drawings import (
    cost,
    current,
    heads,
    ideas,
    layer,
    machines,
    model,
    pruning,
    reading,
    scores,
    state_and_index,
)

PARTS = (
    scores,
    heads,
    layer,
    model,
    reading,
    pruning,
    cost,
    machines,
    current,
    state_and_index,
    ideas,
)  # in the order of the chapters
DRAWINGS = {one.__name__: one for part in PARTS for one in part.DRAWINGS}
