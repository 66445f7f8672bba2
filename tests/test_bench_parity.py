"""bench/parity.py: what it finds, tells and returns; the stand-ins; the official code itself where a clone is named."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.bench_script import BENCH, bench_script

pytestmark = pytest.mark.exhaustive

CLONE = os.environ.get("MLPERF_HPC_CLONE", "")
ENVIRONMENT = Path(os.environ.get("MLPERF_HPC_PARITY", Path(BENCH).parent / ".parity"))
rows = bench_script("parity.rows")
Row, Compared = rows.Row, rows.Compared


def run(*arguments):
    command = [sys.executable, f"{BENCH}/parity.py", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_what_is_beyond_its_tolerance_fails_and_nan_is():
    assert Row("a", "relative", 1e-7, 1e-6).passed and Row("a", "relative", 0.0, 0).passed
    assert Row("told only", "relative", 1.0, None).passed
    assert not Row("a", "relative", 2e-6, 1e-6).passed and not Row("a", "relative", math.nan, 1e-6).passed


def test_differences_are_relative_to_the_largest_official_value():
    assert rows.relative([1.0, 101.0], [1.0, 100.0]) == pytest.approx(0.01)
    assert rows.relative([1.0], [1.0, 2.0]) == math.inf  # another shape
    assert math.isnan(rows.relative([math.nan], [1.0]))


def test_the_exit_status_is_never_green_by_default(capsys):
    told = rows.told
    good = Compared("deepcam", (Row("logits", "relative", 1e-9, 1e-8),))
    bad = Compared("deepcam", (Row("logits", "relative", 1e-7, 1e-8),))
    missing = Compared("cosmoflow", missing="no TensorFlow; `make parity-env` makes it")
    assert told({"deepcam": good}) == 0 and not capsys.readouterr().err
    assert told({"cosmoflow": missing, "deepcam": good}) == 3
    assert told({"cosmoflow": missing, "deepcam": bad}) == 1
    assert told({"oc20": None}) == 1
    error = capsys.readouterr().err
    assert "not run: cosmoflow: no TensorFlow" in error and "deepcam: logits: 1.00e-07, at most 1e-08" in error


def test_results_survive_their_file_and_are_shown(tmp_path):
    result = Compared("oc20", (Row("forces", "relative", 3e-6, 1e-6),), "the edges: no pymatgen", {"torch": "2"})
    result.write(tmp_path / "result.json")
    assert Compared.read(tmp_path / "result.json") == result
    machine = {"date": "2026-01-01", "machine": "a computer", "python": "3"}
    text = "\n".join(rows.page([result, Compared("deepcam", missing="no clone")], machine, "abc"))
    assert "| forces | relative | 3.0e-06 | 1e-06 | **beyond** |" in text and "Not run: the edges: no pymatgen" in text
    assert "Not run: no clone" in text


def test_a_folder_that_is_no_clone_is_refused(tmp_path):
    done = run(tmp_path)
    assert done.returncode == 2 and "is not a clone of mlcommons/hpc" in done.stderr


def test_what_is_missing_is_told_with_how_to_get_it(tmp_path):
    for folder in ("deepcam", "open_catalyst"):
        (tmp_path / folder).mkdir()
    done = run(tmp_path, "--environment", tmp_path / "none", "-o", tmp_path / "parity")
    assert done.returncode == 3
    for name, what in (("cosmoflow", "`make parity-env`"), ("deepcam", "a clone"), ("oc20", "`make parity-env`")):
        (line,) = [line for line in done.stderr.splitlines() if line.startswith(f"not run: {name}: ")]
        assert what in line
    assert [found["rows"] for found in json.loads((tmp_path / "parity.json").read_text())["benchmarks"]] == [[]] * 3


def test_the_stand_in_for_sparse_matrices_lists_all_triplets():
    generator = torch.Generator().manual_seed(0)
    source, centre = torch.randint(0, 5, (2, 40), generator=generator)
    sparse = bench_script("parity.geometric").SparseTensor(centre, source, torch.arange(40), (5, 5))[source]
    found = sorted(zip(sparse.storage.value().tolist(), sparse.storage.row().tolist(), strict=True))
    assert found == sorted((kj, ji) for ji in range(40) for kj in range(40) if centre[kj] == source[ji])
    assert sparse.set_value(None).sum(dim=1).tolist() == [int((centre == source[ji]).sum()) for ji in range(40)]


@pytest.mark.parametrize("name", ["cosmoflow", "deepcam", "oc20"])
def test_the_official_code_agrees(name, tmp_path):
    """MLPERF_HPC_CLONE: a clone of mlcommons/hpc. MLPERF_HPC_PARITY: what `make parity-env` made, .parity if unset."""
    if not CLONE:
        pytest.skip("needs a clone of mlcommons/hpc: set MLPERF_HPC_CLONE")
    done = run(CLONE, "--only", name, "--environment", ENVIRONMENT, "-o", tmp_path / "parity")
    assert done.returncode == 0, done.stderr
