"""The layers of the suite: who may import whom, and which names files may have.

Each guard finds the packages itself, and is shown to fail on a small tree that breaks it.
"""

import ast
import os
import subprocess
import sys

import pytest

from common.benchmarks import PACKAGES
from tests.module_graph import Tree
from tests.problems import ROOT

BENCHMARKS = set(PACKAGES)
ALLOWED = {
    "common": set(),
    **{name: {"common"} for name in PACKAGES},
    "compliance": {"common"},
    "submission": {"common", "compliance"},
}
"""What each package may import beside itself. FACTS_READERS may import the benchmarks' reference.py, too."""
FACTS_READERS = {"compliance", "submission"}
HEAVY = set(
    "torch torchvision tensorflow tensorboard numpy scipy pandas h5py isal zlib_ng safetensors mpi4py nvidia apex ase "
    "lmdb mlperf_logging triton wandb mlflow".split()
)
"""What the checker and the facts of the benchmarks do without."""
CLUSTER, MPI = "common/ranks/", "common/ranks/meeting.py"
"""The only files that know torch.distributed; of mpi4py, the second alone does."""
SCIPY = "submission/results/fits/nonlinear.py"
"""The only file of FACTS_READERS with an extra: `study` says what to install where it cannot be imported."""
COMMANDS = ("compliance.check", "submission.cli")
"""Modules that import nothing heavy, nor what only some calls need, before they know their job.

`mlperf-hpc` may run every module of the suite, and so imports none of them before it knows which.
"""
LIGHT = (
    "common.ranks.launch",
    "common.config",
    "common.data.sampling",
    *(f"{name}.{module}" for name in PACKAGES for module in ("reference", "settings")),
)
"""Modules that need no torch, neither do what they import."""
COMPUTED = {
    "common/benchmarks.py": "a log or a command names the plug-in",
    "common/settings/keys.py": "a benchmark's facts name its settings",
    "common/commands/train.py": "the train module of a benchmark names its package",
    "common/commands/prepare.py": "the prepare module of a benchmark names its package",
    "common/commands/arguments.py": "the command of a benchmark names its settings",
    "common/commands/measure.py": "the benchmark is that of the command",
    "common/commands/entry.py": "the table of commands names them",
    "common/own_code.py": "a user names the modules",
}
"""Files that may import a module whose name no guard can read, and why."""
BAD_NAMES = {"utils", "helpers", "misc", "util", "helper"}


# -- the guards: each yields what is wrong in a tree ----------------------------------------------------------


def unlisted(tree):
    for name in sorted(tree.packages - set(ALLOWED)):
        yield f"{name}/ is a package that nothing guards: list it in common/benchmarks.py, or in ALLOWED here"
    for name in sorted(set(ALLOWED) - tree.packages):
        yield f"{name} is listed, and there is no package {name}/"


def breaches(tree):
    """Yield the imports that the table of layers does not allow."""
    for module in tree.modules.values():
        for target in tree.targets(module):
            top = target.partition(".")[0]
            allowed = top == module.package or top in ALLOWED.get(module.package, ())
            facts = module.package in FACTS_READERS and target == f"{top}.reference" and top in BENCHMARKS
            if not allowed and not facts:
                yield f"{module.path} imports {target}"


def computed(tree):
    for module in tree.modules.values():
        if "*" in module.imports and str(module.path) not in COMPUTED:
            yield f"{module.path} computes the name of a module that it imports: no guard can read it"


def heavy(tree):
    """Yield the imports that would make the checker slow to start, or not start at all on a laptop."""
    for module in tree.modules.values():
        facts = module.path.name in ("reference.py", "settings.py") or module.path.parts[:2] == ("common", "settings")
        if (module.package in FACTS_READERS or facts) and str(module.path) != SCIPY:
            for name in module.imports:
                if name.partition(".")[0] in HEAVY:
                    yield f"{module.path} imports {name}"


def cluster_names(tree):
    """Yield where torch.distributed or mpi4py is named elsewhere: in an import or as an attribute."""
    for module in tree.modules.values():
        named = [ast.unparse(node) for node in ast.walk(module.syntax) if isinstance(node, ast.Attribute)]
        for name in (*module.imports, *named):
            of_mpi = name.partition(".")[0] == "mpi4py"
            allowed = MPI if of_mpi else CLUSTER
            if (of_mpi or name.split(".")[:2] == ["torch", "distributed"]) and not str(module.path).startswith(allowed):
                yield f"{module.path} names {name}: only {allowed} may"


def commands(tree):
    """Yield the imports of a command: what it shares belongs in a module of its own."""
    for module in tree.modules.values():
        for target in tree.targets(module):
            if target.endswith(".__main__"):
                yield f"{module.path} imports {target}"


def circles(tree):
    if circle := tree.circle():
        yield " imports ".join(reversed(circle))


def bad_names(tree):
    for module in tree.modules.values():
        if bad := BAD_NAMES & {*module.path.parts, module.path.stem}:
            yield f"{module.path}: {min(bad)} says nothing about what is inside"


GUARDS = (unlisted, breaches, computed, heavy, cluster_names, commands, circles, bad_names)


@pytest.fixture(scope="module")
def suite():
    return Tree(ROOT)


@pytest.mark.parametrize("guard", GUARDS)
def test_the_suite_keeps_the_layers(guard, suite):
    assert len(suite.modules) > 100 and list(guard(suite)) == []


WHOLE = {f"{name}/__init__.py": "" for name in ALLOWED}
BROKEN = [
    (unlisted, {"unlisted_one/__init__.py": ""}, "unlisted_one/ is a package"),
    (unlisted, {"unlisted_one/model.py": ""}, "unlisted_one/ is a package"),
    (breaches, {"unlisted_one/model.py": "import oc20.model", "oc20/model.py": ""}, "imports oc20.model"),
    (breaches, {"common/x.py": "from oc20 import reference", "oc20/reference.py": ""}, "imports oc20.reference"),
    (breaches, {"oc20/x.py": "from deepcam.reference import MINI", "deepcam/reference.py": ""}, "deepcam.reference"),
    (breaches, {"compliance/x.py": "def f():\n    import submission"}, "compliance/x.py imports submission"),
    (breaches, {"submission/x.py": "from oc20 import model", "oc20/model.py": ""}, "imports oc20.model"),
    (breaches, {"common/x.py": "from importlib import import_module\nimport_module(f'{x}.check')",
                "compliance/check.py": ""}, "common/x.py imports compliance.check"),
    (computed, {"common/x.py": "import importlib\nimportlib.import_module(name)"}, "common/x.py computes"),
    (heavy, {"compliance/x.py": "def f():\n    import numpy.linalg"}, "imports numpy.linalg"),
    (heavy, {"oc20/reference.py": "from torch import nn"}, "oc20/reference.py imports torch.nn"),
    *((cluster_names, {"unlisted_one/model.py": text}, "unlisted_one/model.py names") for text in (
        "import torch.distributed as dist",
        "import torch.distributed.checkpoint",
        "from torch.distributed import broadcast",
        "from torch import distributed",
        "import torch\ntorch.distributed.barrier()",
        "from mpi4py import MPI",
    )),
    (commands, {"submission/x/__main__.py": "", "submission/y.py": "from submission.x.__main__ import main"},
     "submission/y.py imports submission.x.__main__"),
    (circles, {"common/a.py": "from common import b", "common/b.py": "def f():\n    import common.a"}, "common.a"),
    (circles, {"common/a.py": "import common.b", "common/b.py": "if TYPE_CHECKING:\n    from .a import X"}, "common.b"),
    (circles, {"common/b/__init__.py": "import_module(f'common.b.{x}')", "common/b/c.py": "from common.b import X"},
     "common.b.c"),
    (bad_names, {"unlisted_one/utils.py": ""}, "unlisted_one/utils.py"),
    (bad_names, {"common/helpers/x.py": ""}, "common/helpers/x.py"),
]  # fmt: skip


def tree_of(root, files):
    for name, text in (WHOLE | files).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Tree(root)


@pytest.mark.parametrize(("guard", "files", "expected"), BROKEN)
def test_a_guard_fails_on_a_tree_that_breaks_it(guard, files, expected, tmp_path):
    assert list(guard(tree_of(tmp_path / "good", {}))) == []
    assert expected in "\n".join(guard(tree_of(tmp_path / "bad", files)))


def test_a_listed_package_that_is_gone_fails(tmp_path):
    assert len(list(unlisted(Tree(tmp_path)))) == len(ALLOWED)


def test_the_launcher_needs_the_standard_library_alone(suite):
    own = {"common.ranks.launch", "common.errors", "common.slurm"}
    imports = {name for module in own for name in suite.modules[module].imports}
    others = {name for name in imports if name.rpartition(".")[0] not in own and name not in own}
    assert {name.partition(".")[0] for name in others} <= sys.stdlib_module_names


def modules_after(code):
    """Return the names of the top-level modules that a fresh interpreter has loaded after running the code."""
    code += "\nimport sys; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, env=environment
    )
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        *((module, {"torch", "mpi4py"}) for module in LIGHT),
        *((module, HEAVY | {"yaml", "tqdm", "multiprocessing", "xml", "concurrent"}) for module in COMMANDS),
    ],
)
def test_light_modules_load_nothing_heavy(module, heavy):
    loaded = modules_after(f"import {module}")
    assert module.partition(".")[0] in loaded and not heavy & loaded


@pytest.mark.parametrize("name", PACKAGES)
@pytest.mark.parametrize(
    "arguments", ["--help", "--list-configs", "mini --print-config", "mini modle=3", "mini --nope"]
)
def test_what_needs_no_network_is_answered_without_torch(name, arguments):
    code = f"import runpy, sys\nsys.argv[1:] = {arguments.split()!r}\n"
    code += f"try: runpy.run_module('{name}.train', run_name='__main__', alter_sys=True)\nexcept SystemExit: pass"
    loaded = modules_after(f"{code}\nprint()")
    assert name in loaded and not HEAVY & loaded


def test_a_published_log_loads_no_settings_and_one_of_this_suite_those_of_its_benchmark():
    loads = """
import sys, compliance.benchmarks
from compliance.engine import LogTask, judge_log
from compliance.logs.log import parse_log
from compliance.model.judging import Case
from compliance.samples.log import SampleLog

def judge(log):
    judge_log(parse_log(log.bytes(), "result_0.txt"), LogTask("result_0.txt", Case("3.0")))

judge(SampleLog())
assert "cosmoflow.settings" not in sys.modules
judge(SampleLog().by_suite())
assert "cosmoflow.settings" in sys.modules
"""
    assert not HEAVY & modules_after(loads)
