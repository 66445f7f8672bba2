"""What the scripts share that make a page of the published results: the options and the folder of the results."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from checker import ROOT, extract


def write_page(doc: str | None, made: Callable[[Path], str]) -> int:
    """Write the text that `made` returns about the published results in a folder, and return the exit status."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=ROOT.parent / "shared" / "corpus", help="default: %(default)s")
    parser.add_argument("-o", "--output", type=Path, help="file to write (default: standard output)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.corpus
        if any(folder.glob("published_v*.tar.xz")):
            folder = Path(temporary)
            extract(given.corpus, folder)
        text = made(folder)
    if given.output:
        given.output.write_text(text)
    else:
        sys.stdout.write(text)
    return 0
