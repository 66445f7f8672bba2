"""common.ranks.dist: one process, and several under torchrun, mpirun and by hand (the worker is ranks.py)."""

import json
import math
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import psutil  # noqa: E402
import torch.distributed as td  # noqa: E402

from common.errors import LaunchError  # noqa: E402
from common.ranks.connect import connect  # noqa: E402
from common.ranks.dist import parse_json  # noqa: E402
from common.ranks.launch import LAUNCHERS  # noqa: E402
from common.settings.machine import DistConfig  # noqa: E402
from common.stop import StopAsked  # noqa: E402
from tests.common.ranks.test_meeting import free_port  # noqa: E402
from tests.problems import ROOT, mpirun, torchrun  # noqa: E402

WORKER = Path(__file__).with_name("ranks.py")
PACKAGES = ("common", "cosmoflow", "deepcam", "oc20", "submission")
HANGS_S = 100
"""After so long a test has found a hang."""


@pytest.fixture
def environment():
    """Return the environment of this process without a launcher's variables, with one thread per rank."""
    fields = ("marks", "rank", "size", "local_rank", "local_size", "node_rank", "nodes")
    names = {name for launcher in LAUNCHERS for field in fields for name in getattr(launcher, field).split()}
    names |= {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE"}
    kept = {name: value for name, value in os.environ.items() if name not in names}
    return kept | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def launch(command, environment, folder, *steps):
    return run([*command, str(WORKER), str(folder), *steps], environment)


def run(command, environment):
    return subprocess.run(
        command, capture_output=True, text=True, timeout=HANGS_S, env=environment, cwd=ROOT, check=False
    )


def by_hand(ranks, environment, folder, *steps):
    """Start the ranks without a launcher that would stop the others; return exit codes and error outputs."""
    meeting = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())}
    started = [
        subprocess.Popen(
            [sys.executable, str(WORKER), str(folder), *steps],
            stderr=subprocess.PIPE,
            text=True,
            env=environment | meeting | {"RANK": str(rank)},
            cwd=ROOT,
        )
        for rank in range(ranks)
    ]
    try:
        errors = [process.communicate(timeout=HANGS_S)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    return [process.returncode for process in started], errors


def unwound(folder):
    return sorted(path.name for path in folder.glob("unwound*"))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell a process that its parent ended")
def test_ranks_end_with_a_torchrun_that_is_killed(environment, tmp_path):
    script = tmp_path / "rank.py"
    script.write_text(
        "import os, pathlib, time\nfrom common.ranks.connect import connect\n"
        "with connect():\n    pathlib.Path(__file__).with_name(f'pid_{os.getpid()}').touch()\n    time.sleep(600)\n"
    )
    with subprocess.Popen([*torchrun(2), str(script)], env=environment) as process:
        deadline = time.monotonic() + HANGS_S
        while len(pids := [int(path.name[4:]) for path in tmp_path.glob("pid_*")]) < 2:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        process.kill()
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], timeout=5)
    assert not [rank for rank in alive if rank.status() != psutil.STATUS_ZOMBIE]


def test_two_nodes_under_torchrun(environment, tmp_path):
    """All methods; then a rank fails while the others wait in the backward pass: all unwind, and the error is shown."""
    steps = "two_nodes methods leaders memory groups sharing batchnorm leave averaging fail".split()
    done = launch(torchrun(4), environment, tmp_path, *steps)
    assert done.returncode != 0
    assert "rank 3: ValueError: broken on purpose" in done.stderr, done.stderr
    assert done.stderr.count("broken on purpose") == 2, "one rank shows it: its traceback has the line, and the message"
    places = [(tmp_path / f"place{rank}").read_text() for rank in range(4)]
    assert places == ["(0, 2, 0, 2)", "(1, 2, 0, 2)", "(0, 2, 1, 2)", "(1, 2, 1, 2)"]
    assert unwound(tmp_path) == ["unwound0", "unwound1", "unwound2", "unwound3"], done.stderr


@pytest.mark.exhaustive
def test_parts_work_at_their_own_pace(environment, tmp_path):
    """An error in a piece of work, for which the other rank of the part waits, ends that piece alone."""
    done = launch(torchrun(4), environment, tmp_path, "parts")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("piece 1: error: broken on purpose") == 1
    pieces = [json.loads((tmp_path / f"done{rank}").read_text()) for rank in range(4)]
    assert pieces[0] == pieces[1] and pieces[2] == pieces[3]
    assert sorted(pieces[0] + pieces[2]) == [0, 1, 2, 3]


def test_mpirun(environment, tmp_path):
    done = launch(mpirun(2), environment, tmp_path, "methods", "leaders")
    assert done.returncode == 0, done.stderr
    assert [(tmp_path / f"place{rank}").read_text() for rank in range(2)] == ["(0, 2, 0, 1)", "(1, 2, 0, 1)"]


@pytest.mark.exhaustive
def test_failure_under_mpirun(environment, tmp_path):
    """All ranks unwind, although mpirun kills them as soon as one ends with an error."""
    done = launch(mpirun(3), environment, tmp_path, "fail_early")
    assert done.returncode != 0
    assert "rank 2: ValueError: broken on purpose" in done.stderr, done.stderr
    assert unwound(tmp_path) == ["unwound0", "unwound1", "unwound2"], done.stderr


@pytest.mark.exhaustive
def test_a_rank_that_fails_before_mpi_begins_lets_no_other_wait_for_ever(environment):
    """MPI itself would wait in its start, where it hears no signal, and mpirun ends nothing that it does not know."""
    code = (
        "import os, sys\nfrom common.ranks.connect import connect\nfrom common.settings.machine import DistConfig\n"
        "'0' in (os.environ.get('PMI_RANK'), os.environ.get('OMPI_COMM_WORLD_RANK')) and sys.exit(5)\n"
        "with connect(DistConfig(device='cpu', start_timeout_s=5)):\n    pass\n"
    )
    done = run([*mpirun(2), "-c", code], environment)
    assert done.returncode != 0 and "in _open_by_mpi" in done.stderr, done.stderr


@pytest.mark.exhaustive
def test_a_script_may_have_begun_mpi(environment):
    code = (
        "from mpi4py import MPI\nfrom common.ranks.connect import connect\n"
        "from common.settings.machine import DistConfig\n"
        "with connect(DistConfig(device='cpu')) as dist:\n    print(dist.broadcast_json(f'rank {dist.rank}', src=1))\n"
    )
    done = run([*mpirun(2), "-c", code], environment)
    assert done.returncode == 0 and done.stdout.count("rank 1") == 2, done.stderr


def test_sigterm_stops_all(environment, tmp_path):
    codes, errors = by_hand(2, environment, tmp_path, "terminate")
    assert codes == [3, 3], errors
    assert "rank 0: stopped by SIGTERM\n" in errors[0] and "stopped" not in errors[1]
    assert unwound(tmp_path) == ["unwound0", "unwound1"]


@pytest.mark.exhaustive
def test_a_lost_connection_is_not_the_cause(environment, tmp_path):
    codes, errors = by_hand(2, environment, tmp_path, "inattentive", "fail")
    assert codes == [1, 1], errors
    causes = [(tmp_path / name).read_text() for name in unwound(tmp_path)]
    assert causes == ["rank 1: broken on purpose", "broken on purpose"]


@pytest.mark.exhaustive
def test_killed_rank_stops_the_others(environment, tmp_path):
    codes, errors = by_hand(2, environment, tmp_path, "impatient", "die")
    assert codes == [1, -signal.SIGKILL], errors
    assert "rank 0: error: no answer from rank 1 on" in errors[0] and "in barrier in die (ranks.py" in errors[0]
    assert "Traceback" not in errors[0] and unwound(tmp_path) == ["unwound0"]


@pytest.mark.exhaustive
def test_stuck_rank_is_ended(environment, tmp_path):
    codes, errors = by_hand(2, environment, tmp_path, "impatient", "stick")
    assert codes == [1, 1], errors
    assert "rank 0: ended, since it was stuck after rank 1: broken on purpose" in errors[0]


@pytest.fixture
def alone(environment, monkeypatch):
    for name in set(os.environ) - set(environment):
        monkeypatch.delenv(name)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def test_one_process(alone):
    """One process answers as one rank; SIGTERM and errors of the body end it as usual."""
    with connect() as dist:
        assert (dist.rank, dist.world_size, dist.local_size, dist.nodes, dist.is_main) == (0, 1, 1, 1, True)
        tensor, module = torch.arange(3), torch.nn.Linear(1, 1)
        assert dist.all_reduce(tensor) is tensor and dist.broadcast(tensor) is tensor
        assert dist.broadcast_json("a") == "a" and dist.gather_json("a") == dist.find_first(["a"]) == ["a"]
        assert dist.wrap(module) is module and dist.find_leaders() is dist
        dist.check_equal(3, "the seed")
        dist.barrier()
        with dist.no_sync(module):
            pass
    with pytest.raises(ValueError, match="mine"), connect():
        raise ValueError("mine")
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(StopAsked, match="stopped by SIGTERM") as ended, connect():
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.ending.exit_status == 3
    assert signal.getsignal(signal.SIGTERM) == before


def test_the_limit_of_open_files_is_raised_and_checked():
    """In a process of its own, since a hard limit cannot be raised again."""
    code = """
import resource
from common.errors import LaunchError
from common.ranks.groups import check_open_files
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 512))
check_open_files(0, 100, connected=True)
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (512, 512)
check_open_files(1, 300, connected=True)
check_open_files(1, 10_000, connected=False)
try:
    check_open_files(0, 200, connected=False)
except LaunchError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "rank 0 on" in done.stdout and "600 open files for 200 ranks, but the limit is 512" in done.stdout


class Evil:
    def __reduce__(self):
        return os._exit, (99,)


@pytest.mark.parametrize("content", [pickle.dumps(Evil()), b"[" * 100_000, b"\xff"], ids=["pickle", "nested", "bytes"])
def test_what_a_stranger_sends_is_refused_and_runs_no_code(content):
    with pytest.raises(LaunchError, match="is this port open to others"):
        parse_json(content)


@pytest.mark.exhaustive
@pytest.mark.parametrize("stranger", [0, 1])
def test_a_stranger_that_comes_as_a_rank_runs_no_code(stranger, environment, tmp_path):
    codes, errors = by_hand(2, environment, tmp_path, "terminate", str(stranger))
    victim = 1 - stranger
    assert codes[victim] == 1 and f"rank {victim}: error: a rank sent what is not JSON" in errors[victim], errors
    assert list(tmp_path.iterdir()) == []


def test_a_stranger_that_writes_into_the_store_is_not_believed(environment, tmp_path):
    """It says that the loss was not a number, which would be a result, as any program of the node may."""
    with ThreadPoolExecutor(1) as pool:
        ranks = pool.submit(by_hand, 2, environment, tmp_path, "wait_for_stranger")
        end = time.monotonic() + HANGS_S
        while not ((path := tmp_path / "pid").exists() and path.read_text()) and time.monotonic() < end:
            time.sleep(0.05)
        for listening in psutil.Process(int(path.read_text())).net_connections("tcp"):
            if listening.status == psutil.CONN_LISTEN and listening.laddr.ip in ("::", "0.0.0.0"):  # not gloo's
                store = td.TCPStore("127.0.0.1", listening.laddr.port, wait_for_workers=False)
                store.set("attempt0/connect0/news/0", json.dumps(["diverged", "nan", 1]))
        codes, errors = ranks.result()
    assert codes == [1, 1], errors
    assert [(tmp_path / name).read_text() for name in unwound(tmp_path)] == ["failed rank 1: nan"] * 2


def test_no_message_between_ranks_is_pickled():
    named = re.compile(r"\b(?:broadcast|gather|all_gather|scatter|send|recv)_object(?:_list)?\b|allow_pickle=True")
    sources = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    assert len(sources) > 100 and [path for path in sources if named.search(path.read_text())] == []


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"timeout_s": 0}, "timeout_s is 0"),
        ({"bucket_mb": 0}, r"bucket_mb is .*; expected MiB above 0"),
        ({"bucket_mb": math.inf}, r"bucket_mb is .*; expected MiB above 0"),
        ({"bucket_mb": math.nan}, r"bucket_mb is .*; expected MiB above 0"),
        ({"bucket_mb": 1e30}, r"bucket_mb is .*; expected MiB above 0"),
        ({"device": "tpu"}, r"dist.device is 'tpu'.*expected auto, cpu"),
    ],
)
def test_wrong_configuration(alone, wrong, says):
    with pytest.raises((ValueError, LaunchError), match=says), connect(DistConfig(**wrong)):
        pass


@pytest.mark.parametrize("error", [ImportError("No module named 'mpi4py'"), RuntimeError("cannot load MPI library")])
def test_mpirun_without_mpi4py(alone, monkeypatch, error):
    class Missing:
        def find_spec(self, name, path=None, target=None):
            if name.startswith("mpi4py"):
                raise error

    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
    monkeypatch.delitem(sys.modules, "mpi4py", raising=False)
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("PMI_SIZE", "2")
    with (
        pytest.raises(LaunchError, match=r"pmi started rank 0 without the address.*install mpi4py"),
        connect(),
    ):
        pass
