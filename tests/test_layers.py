"""The layers of the suite: who may import whom, which names files may have, and how large they may grow."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("common", "cosmoflow", "deepcam", "oc20", "compliance", "submission")
BENCHMARKS = {"cosmoflow", "deepcam", "oc20"}
ALLOWED = {
    "common": {"common"},
    **{name: {name, "common"} for name in BENCHMARKS},
    "compliance": {"compliance", "common"},
    "submission": {"submission", "compliance", "common"},
}
HEAVY = {"torch", "numpy", "scipy", "pandas", "h5py", "mpi4py", "nvidia", "apex", "mlperf_logging"}
BAD_NAMES = {"utils", "helpers", "misc", "util", "helper"}
LARGEST = 350  # lines of a file; the house style reconsiders at 300
LARGER_FOR_A_REASON = {
    "compliance/log.py": "the reader and the opening of files belong together",
}
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_keep_the_layers(path):
    package = path.relative_to(ROOT).parts[0]
    for module in imported(path):
        top = module.split(".")[0]
        if top in PACKAGES and top not in ALLOWED[package]:
            # Facts of the benchmarks are for everybody.
            assert top in BENCHMARKS and module.endswith(".reference"), f"{path.name} imports {module}"
        if package in ("compliance", "submission") or path.name == "reference.py":
            assert top not in HEAVY, f"{path.name} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_are_named_and_sized(path):
    name = str(path.relative_to(ROOT))
    assert path.stem not in BAD_NAMES
    lines = len(path.read_text().splitlines())
    assert lines <= LARGEST or name in LARGER_FOR_A_REASON, f"{name} has {lines} lines"


def test_exceptions_are_still_needed():
    assert all(len((ROOT / name).read_text().splitlines()) > LARGEST for name in LARGER_FOR_A_REASON)


def test_the_checker_starts_light():
    """The command imports nothing heavy, nor what only some calls need, before it knows its job."""
    code = "import sys, compliance.check; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, env=environment
    )
    loaded = set(done.stdout.split())
    assert "compliance" in loaded and not (HEAVY | {"yaml", "tqdm", "multiprocessing", "xml", "concurrent"}) & loaded
