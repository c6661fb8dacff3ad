"""Print a notebook as text, for `git diff`: each cell's source, its tags and its outputs; a picture is one line."""

import hashlib
import json
import sys


def text(lines):
    return lines if isinstance(lines, str) else "".join(lines)


def show_output(output):
    if output["output_type"] == "stream":
        return text(output["text"])
    if output["output_type"] == "error":
        return f"{output['ename']}: {output['evalue']}"
    data = output["data"]
    lines = [text(data[kind]) for kind in ("text/plain", "text/markdown", "text/latex", "text/html") if kind in data]
    for kind in sorted(data):
        if kind.startswith("image/"):
            picture = text(data[kind])
            lines.append(f"[{kind}, {len(picture)} characters, {hashlib.sha256(picture.encode()).hexdigest()[:12]}]")
    return "\n".join(lines)


def show(notebook):
    for cell in notebook["cells"]:
        tags = " ".join(cell["metadata"].get("tags", []))
        yield f"── {cell['cell_type']} {tags}".rstrip()
        yield text(cell["source"])
        for output in cell.get("outputs", []):
            yield "  → " + show_output(output).rstrip("\n").replace("\n", "\n    ")
        yield ""


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        notebook = json.load(file)
    sys.stdout.reconfigure(encoding="utf-8")
    print("\n".join(show(notebook)))


if __name__ == "__main__":
    main()
