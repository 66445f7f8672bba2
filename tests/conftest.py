"""Fixtures for all tests: small problems and finished runs, and the folder with published logs, where it is there."""

import os
import signal
import tarfile
import zlib
from pathlib import Path

import pytest
from hypothesis import settings

from common.benchmarks import PACKAGES
from common.processes import usable_cores

# Not the width of the terminal from which the tests were started: a test that is about it sets it.
os.environ.pop("COLUMNS", None)
# A job in the background of a shell ignores Ctrl-C, and so would all that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Test processes side by side share the cores: with a thread for each core in every one of them, they would mostly wait
# for each other. Set before anything imports torch or numpy.
SIDE_BY_SIDE = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
if SIDE_BY_SIDE > 1:
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, usable_cores() // SIDE_BY_SIDE)))
# Where the cores are busy, an example takes as long as it takes.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")
pytest_plugins = ["tests.problems"]
HERE = Path(__file__).resolve().parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that says which tests run beside those of the gate."""
    choices = ["none", "all", *map(str, range(10))]
    text = "tests marked exhaustive to run too: none, all, or one tenth of them, 0 to 9 (default: %(default)s)"
    parser.addoption("--exhaustive", choices=choices, default="none", help=text)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the exhaustive tests that were not asked for, and begin with the tests of whole commands.

    These take longest: quick ones are left for the process that is ready first.
    """
    share = config.getoption("exhaustive")
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        if item.get_closest_marker("one_benchmark") and parameters.get("case", PACKAGES[0]) != PACKAGES[0]:
            item.add_marker("exhaustive")

    def is_wanted(item: pytest.Item) -> bool:
        if share == "all" or not item.get_closest_marker("exhaustive"):
            return True
        # By function and not by case, whose fixtures often take longer than the case.
        return share != "none" and zlib.crc32(item.nodeid.partition("[")[0].encode()) % 10 == int(share)

    config.hook.pytest_deselected(items=[item for item in items if not is_wanted(item)])
    items[:] = sorted(filter(is_wanted, items), key=lambda item: item.path.parent != HERE)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that needs a tool that is not here; fail it if the environment's MLPERF_HPC_REQUIRE names it."""
    for mark in item.iter_markers("needs"):
        tool, found, how = mark.args
        if not found and tool in os.environ.get("MLPERF_HPC_REQUIRE", "").split():
            pytest.fail(f"needs {how}", pytrace=False)
        if not found:
            pytest.skip(f"needs {how}")


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder; return it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def untraced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start processes without coverage: for long tests of what others cover."""
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder with specifications, published and adversarial logs; skip the test without it.

    It is `../shared`, or what the environment variable MLPERF_HPC_SHARED names.
    """
    path = Path(os.environ.get("MLPERF_HPC_SHARED") or HERE.parents[1] / "shared")
    if not path.is_dir():
        pytest.skip("../shared is not here")
    return path


@pytest.fixture(scope="session")
def corpus(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the published logs of each round, as `v1.0/<organisation>/results/...`."""
    root = tmp_path_factory.mktemp("corpus")
    archives = sorted((shared / "corpus").glob("published_v*.tar.xz"))
    if not archives:
        pytest.skip("../shared has no corpus/published_v*.tar.xz")
    for archive in archives:
        round_name = archive.name.removeprefix("published_").removesuffix(".tar.xz")
        with tarfile.open(archive) as tar:
            tar.extractall(root / round_name, filter="data")
    return root
