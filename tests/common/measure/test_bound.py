"""A machine with one slow part: the roofline names it, and the meter's bytes are those of the interface and the disk.

As root, on Linux: two network namespaces joined by a veth pair behind `tc tbf`, and cgroup v1's blkio for the disk.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.problems import ROOT

pytestmark = pytest.mark.exhaustive

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
BLKIO = Path("/sys/fs/cgroup/blkio")
SPACES = ("mlhpc-a", "mlhpc-b")
PORT = 29_533
TIMEOUT_S = 240


def ran(words, folder):
    """Run a command to its end in a group of its own, and return what it printed."""
    with subprocess.Popen(
        [*map(str, words)], cwd=folder, env=ENVIRONMENT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            out, _ = process.communicate(timeout=TIMEOUT_S)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert process.returncode == 0, out
    return out


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=20)


@pytest.fixture
def veth():
    """Join two network namespaces at 20 Mbit/s."""
    if os.geteuid() or not (shutil.which("ip") and shutil.which("tc")):
        pytest.skip("needs root, ip and tc")
    for space in SPACES:
        subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)
    try:
        for space in SPACES:
            ip("netns", "add", space)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
    try:
        ip(
            "link",
            "add",
            "rank0",
            "netns",
            SPACES[0],
            "mtu",
            "9000",
            "type",
            "veth",
            "peer",
            "rank1",
            "netns",
            SPACES[1],
        )
        for number, space in enumerate(SPACES):
            device = f"rank{number}"
            ip("-n", space, "addr", "add", f"10.231.7.{number + 1}/24", "dev", device)
            for one in ("lo", device):
                ip("-n", space, "link", "set", one, "mtu", "9000", "up")
            limit = f"tc -n {space} qdisc add dev {device} root tbf rate 20mbit burst 64kb latency 100ms"
            subprocess.run(limit.split(), check=True)
        yield
    finally:
        for space in SPACES:
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)


def on_two_ranks(folder, *words):
    """Run a module on two ranks, each in its namespace; return what rank 0 printed."""
    rendezvous = ["--nnodes", 2, "--nproc-per-node", 1, "--master-addr", "10.231.7.1", "--master-port", PORT]
    command = [sys.executable, "-m", "torch.distributed.run", *rendezvous]
    start = ["ip", "netns", "exec"]
    with (folder / "rank1.txt").open("w") as told, subprocess.Popen(
        [*map(str, [*start, SPACES[1], *command, "--node-rank", 1, "-m", *words])],
        cwd=folder, env=ENVIRONMENT, stdout=told, stderr=told, start_new_session=True,
    ) as other:  # fmt: skip
        try:
            out = ran([*start, SPACES[0], *command, "--node-rank", 0, "-m", *words], folder)
            assert other.wait(60) == 0, (folder / "rank1.txt").read_text()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(other.pid, signal.SIGKILL)
    return out


def count_sent_bytes():
    """Return the bytes that the interface of rank 0 has sent."""
    shown = subprocess.run(
        ["ip", "-n", SPACES[0], "-s", "-j", "link", "show", "rank0"], check=True, capture_output=True, timeout=20
    )
    return json.loads(shown.stdout)[0]["stats64"]["tx"]["bytes"]


def test_a_slow_network(veth, tmp_path):
    counted = []
    for steps in (4, 16):
        before = count_sent_bytes()
        on_two_ranks(tmp_path, "cosmoflow", "measure", "mini", "--steps", steps, "-o", "fom.json")
        counted.append(count_sent_bytes() - before)
    found = json.loads((tmp_path / "fom.json").read_text())
    assert len(found["step_ms"]) == 16 and found["nodes"] == 2
    assert (counted[1] - counted[0]) / 12 == pytest.approx(found["bytes_reduced_per_step"], rel=0.05)
    assert "network limits" in on_two_ranks(tmp_path, "common.measure", "roofline", "fom.json", "-o", "out")
    roofline = json.loads((tmp_path / "out/roofline.json").read_text())
    assert roofline["binds"] == "network"
    assert roofline["ceilings"]["unit_network"] == pytest.approx(20e6 / 8, rel=0.1)
    (messages,) = (roof for roof in roofline["roofs"] if roof["part"] == "network")
    assert 0.5 < messages["reached"] < 1.1


@pytest.fixture
def slow_disk(tmp_path):
    """Yield the words before a command that may read 6 MB/s from the disk of the test's folder."""
    number = os.stat(tmp_path).st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    group = BLKIO / f"mlhpc-{os.getpid()}"
    if os.geteuid() or not (BLKIO / "cgroup.procs").exists():
        pytest.skip("needs root and blkio of cgroup v1")
    group.mkdir()
    try:
        try:
            (group / "blkio.throttle.read_bps_device").write_text(f"{device} 6000000")
        except OSError as error:
            pytest.skip(f"the kernel does not limit device {device} of {tmp_path}: {error.strerror}")
        yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
    finally:
        group.rmdir()


def test_slow_files(slow_disk, tmp_path):
    measure = [sys.executable, "-m", "deepcam", "measure", "mini", "-o", "fom.json", "--steps"]
    ran([*measure, 3], tmp_path)
    measure += [4, "--data", "data/deepcam-measure-mini2", "data.cache=false", "data.direct=true"]
    ran([*slow_disk, *measure], tmp_path)
    found = json.loads((tmp_path / "fom.json").read_text())
    if found["stored_bytes_per_step"] < 0.9 * found["bytes_read_per_step"]:
        pytest.skip(f"{tmp_path} is on no device that a cgroup can limit")
    told = ran([*slow_disk, sys.executable, "-m", "common.measure", "roofline", "fom.json", "-o", "out"], tmp_path)
    roofline = json.loads((tmp_path / "out/roofline.json").read_text())
    assert roofline["binds"] == "I/O" and "I/O limits" in told
    (files,) = (roof for roof in roofline["roofs"] if roof["name"] == "files")
    assert files["rate"] == pytest.approx(6e6, rel=0.15) and 0.5 < files["reached"] < 1.2


def test_neither(tmp_path):
    ran([sys.executable, "-m", "cosmoflow", "measure", "mini", "--steps", 4, "-o", "fom.json"], tmp_path)
    assert "compute limits" in ran([sys.executable, "-m", "common.measure", "roofline", "fom.json"], tmp_path)
