"""What a notebook program shows of an output before it trusts the notebook.

Programs clean such HTML with lists of tags and attributes that they allow. The lists differ; this one is narrower than
that of JupyterLab 4: no style, no script, nothing drawn as SVG, no controls, and no class that a style could find.
"""

import re

from bs4 import BeautifulSoup

GONE = ("script", "style", "textarea", "option")  # with all that is in them
KEPT = re.compile(
    "a|b|blockquote|br|caption|code|dd|del|details|div|dl|dt|em|figcaption|figure|h[1-6]|hr|i|img|kbd|li|ol|p|pre|s|"
    "section|small|span|strong|sub|summary|sup|table|tbody|td|tfoot|th|thead|tr|ul"
)
ATTRIBUTES = {"img": {"src", "alt", "width", "height"}, "a": {"href"}, "td": {"colspan"}, "th": {"colspan", "scope"}}


def cleaned(page: str) -> BeautifulSoup:
    """Keep what is harmless; of other tags their text stays, as the programs do it."""
    soup = BeautifulSoup(page, "html.parser")
    for tag in soup.find_all(GONE):
        tag.decompose()
    for tag in soup.find_all(True):
        if not KEPT.fullmatch(tag.name):
            tag.unwrap()
        else:
            tag.attrs = {key: value for key, value in tag.attrs.items() if key in ATTRIBUTES.get(tag.name, ())}
    return soup
