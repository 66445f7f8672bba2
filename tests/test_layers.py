"""The layers of the suite: who may import whom, and which names files may have."""

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
HEAVY = set(
    "torch torchvision tensorflow tensorboard numpy scipy pandas h5py isal zlib_ng safetensors mpi4py nvidia apex ase "
    "lmdb mlperf_logging triton".split()
)
"""What the checker and the facts of the benchmarks do without."""
CLUSTER = "common/distributed/dist.py"
"""The only file that knows torch.distributed and mpi4py."""
LIGHT = (
    "common.distributed.launch",
    "common.config",
    "common.data.sampling",
    *(f"{name}.reference" for name in sorted(BENCHMARKS)),
)
"""Modules that need no torch, neither do what they import."""
BAD_NAMES = {"utils", "helpers", "misc", "util", "helper"}
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
def test_files_are_named(path):
    assert path.stem not in BAD_NAMES


def cluster_names(path):
    """Yield where a file names torch.distributed or mpi4py: in an import or as an attribute."""
    for module in imported(path):
        if module.split(".")[0] == "mpi4py" or module.split(".")[:2] == ["torch", "distributed"]:
            yield module
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "torch":
            yield from (f"torch.{alias.name}" for alias in node.names if alias.name == "distributed")
        elif isinstance(node, ast.Attribute) and ast.unparse(node) == "torch.distributed":
            yield "torch.distributed"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_one_file_touches_the_cluster(path):
    if str(path.relative_to(ROOT)) != CLUSTER:
        assert list(cluster_names(path)) == [], f"only {CLUSTER} may"


@pytest.mark.parametrize(
    "text",
    [
        "import torch.distributed as dist",
        "import torch.distributed.checkpoint",
        "from torch.distributed import broadcast",
        "from torch import distributed",
        "import torch\ntorch.distributed.barrier()",
        "from mpi4py import MPI",
    ],
)
def test_a_file_that_touches_the_cluster_is_seen(text, tmp_path):
    path = tmp_path / "x.py"
    path.write_text(text)
    assert list(cluster_names(path))


def test_the_launcher_needs_the_standard_library_alone():
    modules = {module.split(".")[0] for module in imported(ROOT / "common" / "distributed" / "launch.py")}
    assert modules <= sys.stdlib_module_names


def modules_after(code):
    """Return the names of the top-level modules that a fresh interpreter has loaded after running the code."""
    code += "\nimport sys; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, env=environment
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("module", LIGHT)
def test_light_modules_load_no_torch(module):
    loaded = modules_after(f"import {module}")
    assert module.split(".")[0] in loaded and not {"torch", "mpi4py"} & loaded


def test_the_checker_starts_light():
    """The command imports nothing heavy, nor what only some calls need, before it knows its job."""
    loaded = modules_after("import compliance.check")
    assert "compliance" in loaded and not (HEAVY | {"yaml", "tqdm", "multiprocessing", "xml", "concurrent"}) & loaded
