"""Say clearly whether this Python can run the course. Written so that even a very old Python can read it."""

import os
import sys

OLDEST, NEWEST = (3, 10), (3, 13)


def version(pair):
    return "%d.%d" % pair  # noqa: UP031  (an old Python has no f-strings)


def others():
    """Names of suitable Pythons on the PATH, newest first."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    names = ["python3.%d" % minor for minor in range(NEWEST[1], OLDEST[1] - 1, -1)]  # noqa: UP031
    return [name for name in names if any(os.access(os.path.join(folder, name), os.X_OK) for folder in folders)]


def main():
    here = sys.version_info[:2]
    if not OLDEST <= here <= NEWEST:
        age = "older" if here < OLDEST else "newer"
        print("This Python is %s (%s)." % (version(here), sys.executable))  # noqa: UP031
        print("That is %s than the course supports: it needs %s to %s." % (age, version(OLDEST), version(NEWEST)))  # noqa: UP031
        found = others()
        if found:
            print("You also have " + ", ".join(found) + ". Name one:  make book PYTHON=" + found[0])
        else:
            print("Install one of these versions, then name it:  make book PYTHON=/path/to/python3.12")
        return 1
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError as missing:
        print("%s has no module %r, so it cannot make an environment." % (sys.executable, missing.name))  # noqa: UP031
        print("On Debian and Ubuntu:  sudo apt install python%s-venv" % version(here))  # noqa: UP031
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
