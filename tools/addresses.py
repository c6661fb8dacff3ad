"""Where the course is on the web, if anywhere: the one place that knows which address a link leads to.

    COURSE_REPOSITORY=https://github.com/OWNER/NAME    the repository; its branch `readers` holds the readers' notebooks
    COURSE_SITE=https://OWNER.github.io/NAME           the built book

Where neither is set, no link leads out of the copy in which it stands.
"""

import os
import re
from typing import NamedTuple

BRANCH = "readers"
ASKED = {  # variable: what it must look like, how to say that
    "COURSE_REPOSITORY": (r"https://github\.com/[\w.-]+/[\w.-]+", "https://github.com/OWNER/NAME"),
    "COURSE_SITE": (r"https://[\w.-]+(/[\w.-]+)*", "https://HOST or https://HOST/PATH"),
}
IN_README = re.compile(r"\]\((notebooks|book)/(\w+)\.(?:ipynb|md)(#[\w-]+)?\)")


def asked(variable):
    """The address in a variable of the environment, or an empty text."""
    address = os.environ.get(variable, "").rstrip("/").removesuffix(".git")
    pattern, form = ASKED[variable]
    if address and not re.fullmatch(pattern, address):
        raise ValueError(f"{variable} = {address!r}: give {form}, or leave it out")
    return address


class Addresses(NamedTuple):
    """What is known: the repository, the site, both or none (empty texts)."""

    repository: str = ""
    site: str = ""

    def notebook(self, stem, fragment=""):
        """Where a notebook is read: on the site, else the file beside this one."""
        here = f"{fragment and '#'}{fragment}"
        return f"{self.site}/notebooks/{stem}.html{here}" if self.site else f"{stem}.ipynb{here}"

    def page(self, stem, fragment=""):
        """Where a page of the book is read; an empty text where nobody knows."""
        return f"{self.site}/book/{stem}.html{fragment and '#'}{fragment}" if self.site else ""

    def colab(self, stem):
        """Where Colab opens a readers' notebook; an empty text where the repository is not known."""
        path = f"{self.repository.removeprefix('https://github.com/')}/blob/{BRANCH}/notebooks/{stem}.ipynb"
        return f"https://colab.research.google.com/github/{path}" if self.repository else ""

    def binder(self, stem):
        """Where Binder opens it."""
        name = self.repository.removeprefix("https://github.com/")
        path = f"{name}/{BRANCH}?urlpath=lab/tree/notebooks/{stem}.ipynb"
        return f"https://mybinder.org/v2/gh/{path}" if self.repository else ""

    def package(self):
        """What pip installs the package from where no copy is at hand."""
        return f"git+{self.repository}@{BRANCH}" if self.repository else ""

    def readme(self, text):
        """The README whose links to chapters and pages lead to the site, else chapters to the branch for readers."""

        def better(link):
            folder, stem, fragment = link[1], link[2], link[3] or ""
            if self.site:
                return f"]({self.site}/{folder}/{stem}.html{fragment})"
            if self.repository and folder == "notebooks":
                return f"]({self.repository}/blob/{BRANCH}/notebooks/{stem}.ipynb{fragment})"
            return link[0]

        return IN_README.sub(better, text)


def known():
    """What the environment says."""
    return Addresses(asked("COURSE_REPOSITORY"), asked("COURSE_SITE"))
