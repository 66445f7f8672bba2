"""Write the pages of the site, for `make site`.

docs/ and the pages outside it, each with links that hold in the site. Links to other files of the tree lead to copies
of them; links to folders become text. The generator, which mkdocs.yml configures, needs nothing but these files.
"""

import argparse
import os
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "build" / "pages"
DOCS = ROOT / "docs"
OUTSIDE = {
    ROOT / "README.md": "index.md",  # docs/index.md is the first page of the site
    ROOT / "CONTRIBUTING.md": "contributing.md",
    ROOT / "CHANGELOG.md": "changelog.md",
    **{page: f"benchmarks/{page.parent.name}.md" for page in ROOT.glob("[!.]*/README.md") if page.parent != DOCS},
    **{page: f"integrations/{page.parent.name}.md" for page in ROOT.glob("integrations/*/README.md")},
}
"""Where pages outside docs/ are in the site."""


def locate(file: Path) -> str:
    """Return the path in the site of a file of the tree."""
    if file.is_relative_to(DOCS):
        return str(file.relative_to(DOCS))
    return OUTSIDE.get(file) or "files/" + str(file.relative_to(ROOT)).lstrip(".")  # MkDocs leaves dot files out


def rewrite_links(page: Path, folder: Path) -> str:
    """Return the text of a page with links that hold in the site; copy the files that they lead to into the folder."""

    def rewrite(match: re.Match[str]) -> str:
        text, link, anchor = match.groups()
        target = (page.parent / link).resolve()
        if target.is_dir():
            return text.strip("[]")
        path = locate(target)
        if path.startswith("files/"):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(target, folder / path)
        return f"{text}({os.path.relpath(path, Path(locate(page)).parent)}{anchor})"

    return re.sub(r"(\[[^][]*\])\((?![a-z]+:)([^)#\s]+)(#[^)\s]*|)\)", rewrite, page.read_text())


def write_pages(folder: Path) -> None:
    if folder == PAGES:  # another folder may be anything: copytree refuses one that exists
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder)
    for page in (*DOCS.rglob("*.md"), *OUTSIDE):
        if page != ROOT / "README.md":
            (folder / locate(page)).parent.mkdir(exist_ok=True)
            (folder / locate(page)).write_text(rewrite_links(page, folder))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python bench/site_pages.py", description="Write the pages of the site.")
    parser.add_argument("folder", type=Path, nargs="?", default=PAGES, help="a new folder (default: build/pages)")
    write_pages(parser.parse_args().folder)
