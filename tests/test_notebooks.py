"""docs/notebooks/: what bench/notebooks.py writes from the guide, with links that lead on, run by a kernel."""

import re
from importlib import import_module

import nbformat
import pytest
from nbclient import NotebookClient

from tests.bench_script import bench_script
from tests.problems import ROOT
from tests.test_pages import SMALL

NOTEBOOKS = ROOT / "docs" / "notebooks"
SHOWN = {
    "train": (6, r"'0\.01': [\d.]+, '0\.02': [\d.]+"),
    "own-network": (1, r"problem Means of mine\.py"),
    "read-a-round": (1, r"(?ms)^FAIL runs/round/package/.*^QUA01 .*^RUN01 .*<table.*result_1\.txt.*^training: FLOP"),
}
"""By notebook: how many figures it shows, and a pattern of its texts."""


def test_the_notebooks_are_made_from_the_guide(capsys):
    assert bench_script("notebooks").main(["--check"]) == 0, capsys.readouterr().err
    assert {path.stem for path in NOTEBOOKS.iterdir()} == SHOWN.keys()


@pytest.mark.parametrize("name", SHOWN)
def test_links_of_a_notebook_lead_to_files(name):
    links = re.findall(r"\]\((?!http)([^)#]+)", (NOTEBOOKS / f"{name}.ipynb").read_text())
    assert links and [link for link in links if not (NOTEBOOKS / link).exists()] == []


def test_code_becomes_what_a_kernel_runs():
    convert = bench_script("notebooks").convert_code
    assert convert("python", "# mine.py\nx = 1\n# y.py") == "%%writefile mine.py\nx = 1\n# y.py"
    assert convert("sh", "mlperf-hpc check a\npython -m b") == (
        "import sys\n\n!{sys.executable} -m submission.cli check a\n!{sys.executable} -m b"
    )


def show(output):
    """Return the text of an output, HTML where it has one."""
    data = output.get("data", {})
    return output.get("text") or data.get("text/html") or data.get("text/plain", "")


@pytest.mark.exhaustive
@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("name", SHOWN)
def test_a_notebook_runs_from_top_to_bottom(name, tmp_path, monkeypatch):
    """In an empty folder; 1 to 4 minutes each, as they train networks."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("MPLBACKEND", raising=False)
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    NotebookClient(notebook, timeout=900, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    figures, pattern = SHOWN[name]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == figures
    assert re.search(pattern, "\n".join(map(show, outputs)))


@pytest.mark.exhaustive
def test_the_first_cell_of_the_page_trains(tmp_path, monkeypatch):
    """On a few samples in the folder of the mini problem, which it would make."""
    monkeypatch.chdir(tmp_path)
    assert import_module("cosmoflow.synthesize").main(["data/cosmoflow-mini", *SMALL["cosmoflow"]]) == 0
    page = (ROOT / "docs" / "guide" / "notebook.md").read_text()
    names = {}
    exec(re.search(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[1], names)
    assert len(names["run"].history) == 2
