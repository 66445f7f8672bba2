"""Write docs/notebooks/ from the guide's cells: `python bench/notebooks.py`; with `--check`, only compare them.

Prose becomes Markdown cells, python blocks cells of code, a block that begins with `# name.py` a cell that writes this
file, and sh blocks cells that run their commands with the kernel's Python. Outputs are not stored.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

ROOT = Path(__file__).resolve().parents[1]
GUIDE, FOLDER = ROOT / "docs" / "guide", ROOT / "docs" / "notebooks"
KERNEL = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}


class Source(NamedTuple):
    """A notebook: title, minutes on two cores, the page and its sections, code that comes before them."""

    title: str
    minutes: int
    page: str
    sections: tuple[str, ...]
    before: str = ""


NOTEBOOKS = {
    "train": Source(
        "Train and look at a mini problem",
        5,
        "notebook.md",
        (
            "CosmoFlow: a curve, and predicted parameters",
            "DeepCAM: a label map",
            "OC20: forces on atoms",
        ),
        "The data are too few for a good network; without `data.data_dir`, `train.run` trains the mini problem.\n",
    ),
    "own-network": Source(
        "Bring your own network",
        3,
        "library.md",
        ("The data in your own loop", "A network and a loss", "What is recorded"),
        """\
A few samples stand in for those of the mini problem.
Remove `data/` afterwards: the next training generates all of them.

```python
from cosmoflow import synthesize

synthesize.main(["data/cosmoflow-mini", "--train", "64", "--validation", "16"])
```
""",
    ),
    "read-a-round": Source("Read a round", 2, "analyse.md", ("Read a round in a notebook",)),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or compare the notebooks; return 1 if `--check` finds one out of date."""
    parser = argparse.ArgumentParser(prog="python bench/notebooks.py", description="Write the notebooks.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a notebook is out of date")
    check = parser.parse_args(arguments).check
    texts = {FOLDER / f"{name}.ipynb": format_notebook(source) for name, source in NOTEBOOKS.items()}
    outdated = {path: text for path, text in texts.items() if not path.exists() or path.read_text("utf-8") != text}
    for path, text in outdated.items():
        if check:
            print(f"{path} is out of date; run `python bench/notebooks.py`", file=sys.stderr)
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return int(check and bool(outdated))


def format_notebook(source: Source) -> str:
    """Return the notebook as text, the same from the same page.

    Raises ValueError if the page has no section of a name.
    """
    first = (
        f"# {source.title}\n\n"
        f"About {source.minutes} minutes on two cores. Start it in an empty folder: data and runs are made there.\n"
        "Before: `pip install '.[all,plot]' ipykernel` in a clone of the suite ([more](install.md)).\n\n"
        f"Made from [{source.page}]({source.page}), where changes belong.\n"
    )
    page = (GUIDE / source.page).read_text(encoding="utf-8")
    parts = [first, source.before, *(_find_section(page, title, source.page) for title in source.sections)]
    notebook = new_notebook(metadata=KERNEL)
    notebook.cells = [cell for part in parts for cell in split_cells(part, source.page)]
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
    nbformat.validate(notebook)
    return f"{nbformat.writes(notebook, version=4).rstrip()}\n"


def _find_section(page: str, title: str, name: str) -> str:
    section = re.search(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    if section is None:
        raise ValueError(f"{name}: no section `{title}`; correct NOTEBOOKS in bench/notebooks.py")
    return section[0]


def split_cells(text: str, page: str) -> Iterator[nbformat.NotebookNode]:
    """Yield the cells of a part of a page."""
    blocks = re.split(r"^```(python|sh)\n(.*?)^```\n", text, flags=re.MULTILINE | re.DOTALL)
    for prose, language, code in zip(blocks[::3], [*blocks[1::3], ""], [*blocks[2::3], ""], strict=True):
        if prose.strip():
            yield new_markdown_cell(move_links(prose.strip(), page))
        if language:
            yield new_code_cell(convert_code(language, code.rstrip()))


def convert_code(language: str, code: str) -> str:
    """Return a block as a kernel runs it; commands find the suite even if its environment is not activated."""
    if language == "python":
        return re.sub(r"\A# (\w+\.py)$", r"%%writefile \1", code, flags=re.MULTILINE)
    commands = re.sub(r"^mlperf-hpc ", "python -m submission.cli ", code, flags=re.MULTILINE)
    return "import sys\n\n" + re.sub(r"^python ", "!{sys.executable} ", commands, flags=re.MULTILINE)


def move_links(prose: str, page: str) -> str:
    """Return prose of the guide with links that lead on from the folder of the notebooks."""

    def move(link: re.Match[str]) -> str:
        path, mark, heading = link[1].partition("#")
        return f"]({os.path.relpath(GUIDE / (path or page), FOLDER)}{mark}{heading})"

    return re.sub(r"\]\((?!http)([^)]+)\)", move, prose)


if __name__ == "__main__":
    raise SystemExit(main())
