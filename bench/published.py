"""What the scripts share that make a page of the published results: the options and the folder of the results."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from checker import ROOT, extract

Write = Callable[[Path], str]


def write_page(doc: str | None, made: Write, made_json: Write | None = None) -> int:
    """Write the text that `made` returns about the published results in a folder, and return the exit status.

    made_json: what returns that of a .json file, if the script writes one, too.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=ROOT.parent / "shared" / "corpus", help="default: %(default)s")
    parser.add_argument("-o", "--output", type=Path, help="file to write (default: standard output)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.corpus
        if any(folder.glob("published_v*.tar.xz")):
            folder = Path(temporary)
            extract(given.corpus, folder)
        is_table = made_json and given.output and given.output.suffix == ".json"
        text = (made_json if made_json and is_table else made)(folder)
    if given.output:
        given.output.write_text(text)
    else:
        sys.stdout.write(text)
    return 0
