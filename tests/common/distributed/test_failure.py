"""The alarm of the ranks."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch.distributed as td

from common.distributed.failure import Alarm

ROOT = Path(__file__).parents[3]
# The watcher waits in a call of torch while the block, and then the process, ends.
ENDS_DURING_A_CALL = """
import threading
from datetime import timedelta
from torch.distributed import TCPStore
from common.distributed import failure

class Store:
    def __init__(self):
        limit = timedelta(seconds=10)
        self.server = TCPStore("localhost", 0, 1, is_master=True, wait_for_workers=False, timeout=limit)
        self.client = TCPStore("localhost", self.server.port, is_master=False, wait_for_workers=False, timeout=limit)
        self.called = threading.Event()

    def check(self, keys):
        self.called.set()
        self.client.wait(["never"], timedelta(seconds=0.5))

failure.LOOK_EVERY_S = 0.01
store = Store()
with failure.Alarm(store, 0, 1, lambda: None):
    store.called.wait()
"""


@pytest.mark.exhaustive
def test_a_process_can_end_while_its_alarm_asks_the_store():
    command = [sys.executable, "-c", ENDS_DURING_A_CALL]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (RuntimeError("[/gloo/transport/tcp/pair.cc:537] Read error [::1]:20: Connection reset by peer."), True),
        (td.DistNetworkError("Failed to recv, got 0 bytes. Connection was likely closed."), True),
        (td.DistBackendError("NCCL error: remote process exited or there was a network error"), True),
        (RuntimeError("[/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 6000ms for recv operation"), False),
        (td.DistStoreError("wait timeout after 6000ms"), False),
        (RuntimeError("the collector of a callback said: Broken pipe"), False),
        (OSError(32, "Broken pipe"), False),
    ],
    ids=lambda value: "" if isinstance(value, bool) else type(value).__name__,
)
def test_only_a_lost_connection_between_ranks_is_told_as_such(error, lost, capsys):
    try:
        raise error
    except type(error):
        assert Alarm(td.HashStore(), 0, 1, lambda: None).fail(error) == 1
    told = capsys.readouterr().err
    assert told.startswith("rank 0: error: lost the connection to another rank: it was killed") == lost
    assert ("Traceback" in told) != lost and str(error) in told
