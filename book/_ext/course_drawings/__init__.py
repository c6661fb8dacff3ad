"""The drawings: those named like a chapter stand at its beginning, others beside a formula or a paragraph.

Numbers in them are computed here, from the running example.
"""

from course_drawings import cost, current, heads, ideas, layer, state_and_index

DRAWINGS = {
    one.__name__: one for part in (heads, layer, cost, current, state_and_index, ideas) for one in part.DRAWINGS
}
