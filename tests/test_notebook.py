"""The cells of docs/guide/notebook.md run from top to bottom as they are printed, as a kernel would run them."""

import contextlib
import re
import threading
from importlib import import_module
from pathlib import Path

import pytest

from tests.test_docs import SMALL

PAGE = Path(__file__).parents[1] / "docs" / "guide" / "notebook.md"
SECTIONS = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)


def cells(section):
    return re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    return tmp_path


def run_cells(section):
    namespace = {"__name__": "__main__"}
    for number, cell in enumerate(cells(section), 1):
        exec(compile(cell, f"cell {number}", "exec"), namespace)
    return namespace


@pytest.mark.exhaustive
def test_the_first_cell_trains(folder):
    """On a few samples in the folder of the mini problem, which it would make."""
    synthesize = import_module("cosmoflow.synthesize")
    assert synthesize.main(["data/cosmoflow-mini", *SMALL["cosmoflow"], "--workers", "1"]) == 0
    assert len(run_cells(SECTIONS[0])["run"].history) == 2


@pytest.mark.exhaustive
@pytest.mark.parametrize("section", SECTIONS[1:], ids=lambda section: section.split(":")[0])
def test_an_example_runs_from_top_to_bottom(section, folder, capsys):
    namespace = run_cells(section)
    name = section.split(":")[0].lower()
    run = namespace["run"]
    assert len(run.history) == run.config.train.epochs and (folder / f"{name}.png").stat().st_size > 5_000
    if name == "cosmoflow":
        logs = [other.log.read_bytes() for other in namespace["runs"]]
        assert len(logs) == 2
        rates = cells(section)[-1]
        # A kernel may run cells in a thread of its own, beside an event loop.
        thread = threading.Thread(target=exec, args=(rates, namespace))
        thread.start()
        thread.join()
        assert [other.log.read_bytes() for other in namespace["runs"]] == logs
    with contextlib.suppress(ImportError):
        import_module("matplotlib.pyplot").close("all")
