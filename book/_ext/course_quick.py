"""A quick build: no search for garbage, no library loaded in vain. First among the extensions: it counts from there.

A build makes millions of small objects, nearly all of which live to its end. Python's collector looks through them
again and again: that is a third of the time of a second build. Without it the whole book takes 0.6 GB, not 0.4.
"""

import gc
import sys
from types import SimpleNamespace

UNUSED = {  # what _config.yml has switched off, and what the modules would give
    "sphinxext.opengraph._social_cards": {"DEFAULT_SOCIAL_CONFIG": {}, "create_social_card": None},  # loads matplotlib
    "myst_nb.core.execute.cache": {"NotebookClientCache": None},  # both execute notebooks; they load a database
    "myst_nb.core.execute.direct": {"NotebookClientDirect": None},
}


def collect_again(app, exception):
    """Collect from now on, but not what is there: looking through it takes a second at the very end, too."""
    gc.freeze()
    gc.enable()


def setup(app):
    gc.disable()
    for module, names in UNUSED.items():
        sys.modules.setdefault(module, SimpleNamespace(**names))
    app.connect("build-finished", collect_again)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
