"""`make` takes the CPU build of torch where there is no accelerator and the index answers."""

import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ACCELERATOR = os.uname().sysname != "Linux" or any(map(os.path.exists, ("/dev/nvidiactl", "/dev/kfd")))
PYTHON = """#!/bin/sh
case "$1" in -c) exec python3 "$@";; *) echo "ran: $*";; esac
"""


@pytest.fixture
def index():
    """Serve a wheel index; return its address."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def installed(folder: Path, path: str = "", **variables: str) -> str:
    """Return what `make` says when it installs into an environment with a stand-in for Python."""
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / "python").write_text(PYTHON)
    (folder / "bin" / "python").chmod(0o755)
    (folder / ".created").touch()
    arguments = [f"{name}={value}" for name, value in {"VENV": folder, **variables}.items()]
    environment = {**os.environ, "PATH": f"{path}:/usr/bin:/bin", "no_proxy": "*"}
    command = ["make", "--no-print-directory", *arguments, f"{folder}/.training-installed"]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout


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
