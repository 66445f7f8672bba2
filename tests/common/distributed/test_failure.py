"""The alarm of the ranks."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

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


def test_a_process_can_end_while_its_alarm_asks_the_store():
    command = [sys.executable, "-c", ENDS_DURING_A_CALL]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
