"""`make` takes the CPU build of torch where there is no accelerator and the index answers."""

import os
import threading
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

import pytest

from tests.problems import ROOT, run_process

ACCELERATOR = os.uname().sysname != "Linux" or any(map(os.path.exists, ("/dev/nvidiactl", "/dev/kfd")))
PYTHON = """#!/bin/sh
case "$1" in -c) exec python3 "$@";; *) echo "ran: $*";; esac
"""


@pytest.fixture
def index(tmp_path_factory):
    """Serve a wheel index; return its address."""
    folder = tmp_path_factory.mktemp("index")
    (folder / "torch").mkdir()
    with HTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def installed(folder: Path, path: str = "", **variables: str) -> str:
    """Return what `make` says when it installs into an environment with a stand-in for Python."""
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / "python").write_text(PYTHON)
    (folder / "bin" / "python").chmod(0o755)
    (folder / ".created").touch()
    words = [f"{name}={value}" for name, value in variables.items()]
    words += ["--no-print-directory", f"VENV={folder}", f"{folder}/.training-installed"]
    done = run_process("make", *words, variables={"PATH": f"{path}:/usr/bin:/bin", "no_proxy": "*"}, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(ACCELERATOR, reason="this machine has an accelerator, or is not Linux")
def test_without_an_accelerator_torch_is_the_cpu_build(tmp_path, index):
    said = installed(tmp_path, CPU_INDEX=index)
    assert said.startswith(f"no accelerator found: installing the CPU build of torch from {index} (TORCH_INDEX")
    assert f"--extra-index-url {index} --editable .[all]" in said


@pytest.mark.skipif(ACCELERATOR, reason="this machine has an accelerator, or is not Linux")
def test_an_index_that_does_not_answer_is_left_out(tmp_path):
    said = installed(tmp_path, CPU_INDEX="http://127.0.0.1:9")
    assert "does not answer: installing torch from the default index\n" in said
    assert "--extra-index-url" not in said


def test_with_an_accelerator_the_default_index_is_asked(tmp_path, index):
    smi = tmp_path / "tools" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text("#!/bin/sh\n")
    smi.chmod(0o755)
    said = installed(tmp_path, path=str(smi.parent), CPU_INDEX=index)
    assert said.splitlines() == [said.strip()] and "--extra-index-url" not in said


def test_torch_index_overrides(tmp_path, index):
    said = installed(tmp_path, CPU_INDEX=index, TORCH_INDEX="https://example.org/whl")
    assert said.splitlines() == [said.strip()] and "--extra-index-url https://example.org/whl " in said
