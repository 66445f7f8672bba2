"""What the scripts share that make a page of the published results: the options and the folder of the results."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from checker import ROOT, extract

from common.rounds import TRAINING, Round

Write = Callable[[Path], str]
TRAINING_ROUND = Round(TRAINING, "4.1").name
"""The round of MLPerf Training whose logs are at hand."""


def write_page(doc: str | None, made: Write, made_json: Write | None = None, made_training: Write | None = None) -> int:
    """Write the text that `made` returns about the published results in a folder, and return the exit status.

    made_json: what returns that of a .json file, if the script writes one, too. made_training: that of the results of
    MLPerf Training.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=ROOT.parent / "shared" / "corpus", help="default: %(default)s")
    parser.add_argument("-o", "--output", type=Path, help="file to write (default: standard output)")
    if made_training:
        parser.add_argument("--training", action="store_true", help="of MLPerf Training, in place of MLPerf HPC")
    given = parser.parse_args()
    kind = "published"
    if made_training and given.training:
        made, made_json, kind = made_training, None, TRAINING
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.corpus
        if any(folder.glob(f"{kind}_v*.tar.xz")):
            folder = Path(temporary)
            extract(given.corpus, folder, kind)
        is_table = made_json and given.output and given.output.suffix == ".json"
        text = (made_json if made_json and is_table else made)(folder)
    if given.output:
        given.output.write_text(text)
    else:
        sys.stdout.write(text)
    return 0
