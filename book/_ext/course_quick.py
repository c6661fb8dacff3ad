"""A quick build: no search for garbage, and no drawing library. First among the extensions: it counts from the start.

A build makes millions of small objects, nearly all of which live to its end. Python's collector looks through them
again and again: that is a third of the time of a second build. Without it the whole book takes 0.6 GB, not 0.4.
"""

import gc
import sys
from types import SimpleNamespace

CARDS = "sphinxext.opengraph._social_cards"  # imports matplotlib, for cards that _config.yml has switched off


def collect_again(app, exception):
    """Collect from now on, but not what is there: looking through it takes a second at the very end, too."""
    gc.freeze()
    gc.enable()


def setup(app):
    gc.disable()
    sys.modules.setdefault(CARDS, SimpleNamespace(DEFAULT_SOCIAL_CONFIG={}, create_social_card=None))
    app.connect("build-finished", collect_again)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
