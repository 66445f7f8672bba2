"""The alarm of the ranks."""

import json
import re
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

import torch.distributed as td

from common.ending import Ending, EndingError
from common.ranks.alarm import Alarm, Stopped, describe_main_thread
from common.ranks.groups import is_lost
from common.ranks.meeting import AnsweringStore
from common.stop import STOP
from tests.problems import ROOT


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    """Shorten the patience."""
    monkeypatch.setattr("common.ranks.alarm.ROLL_S", 0.2)
    monkeypatch.setattr("common.ranks.alarm.GRACE_S", 0.1)


# The watcher waits in a call of torch when the block, and then the process, ends.
ENDS_DURING_A_CALL = """
import time
from datetime import timedelta
from torch.distributed import TCPStore
from common.ranks.alarm import Alarm

brief = timedelta(seconds=10)
store = TCPStore("localhost", 0, 1, is_master=True, wait_for_workers=False, timeout=brief)
with Alarm(store, 0, 1):
    time.sleep(0.3)
"""


@pytest.mark.exhaustive
def test_a_process_can_end_while_its_alarm_asks_the_store():
    subprocess.run([sys.executable, "-c", ENDS_DURING_A_CALL], cwd=ROOT, check=True)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            RuntimeError("[/gloo/transport/tcp/pair.cc:537] Read error [::1]:20: Connection reset by peer."),
            "lost a con",
        ),
        (td.DistNetworkError("Failed to recv, got 0 bytes. Connection was likely closed."), "lost a connection"),
        (td.DistBackendError("NCCL error: remote process exited or there was a network error"), "lost a connection"),
        (RuntimeError("[/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 6000ms for recv"), "waited longer"),
        (td.DistStoreError("wait timeout after 6000ms"), "waited longer than dist.timeout_s"),
        (RuntimeError("the collector of a callback said: Broken pipe"), ""),
        (OSError(32, "Broken pipe"), ""),
    ],
    ids=lambda value: "" if isinstance(value, str) else type(value).__name__,
)
def test_a_lost_or_late_rank_is_named_by_a_roll_call(error, text, capsys):
    store, host = td.HashStore(), socket.gethostname()
    store.set("life/1", json.dumps(["nid7", time.time() - 20, "epoch 2, step 31", "all_reduce in f (x.py:1)", True]))
    store.set("answer/0", json.dumps([host, time.time(), "", "all_reduce in f (x.py:1)", True]))
    try:
        raise error
    except type(error):
        assert Alarm(store, 0, 2).report_error(error).exit_status == 1
    told = capsys.readouterr().err
    if text:
        found = re.search(
            r"rank 0: error: no answer from rank 1 on nid7 \((\d+) s ago, epoch 2, step 31, all_reduce", told
        )
        assert found and int(found[1]) >= 20
        assert text in told and "/gloo/" not in told and "Traceback" not in told
    else:
        assert "Traceback" in told and str(error) in told


def test_a_busy_rank_is_named_when_another_waited_too_long():
    store = td.HashStore()
    for rank, doing in enumerate(("all_reduce in f (x.py:1)", "read in g (y.py:2)")):
        store.set(f"answer/{rank}", json.dumps([f"nid{rank}", time.time(), "", doing, rank == 0]))
    with (
        pytest.raises(EndingError, match=r"not all came to the same point: rank 1 on nid1 \(\d s ago, read in g"),
        Alarm(store, 0, 2).first_failure(),
    ):
        raise td.DistStoreError("wait timeout after 6000ms")


def test_what_the_main_thread_does():
    with ThreadPoolExecutor(1) as pool:
        doing, waits = pool.submit(describe_main_thread).result()
    assert re.fullmatch(r"test_what_the_main_thread_does \(test_alarm\.py:\d+\)", doing) and not waits


def test_a_rank_whose_collective_has_failed_is_not_the_busy_one(monkeypatch):
    monkeypatch.setattr("common.ranks.alarm.GRACE_S", 0.5)
    store = td.HashStore()

    def look():
        time.sleep(0.2)
        return describe_main_thread()

    with ThreadPoolExecutor(1) as pool:
        seen = pool.submit(look)
        Alarm(store, 0, 2).report_error(ValueError("mine"))
    assert seen.result()[1]


def test_a_store_that_does_not_answer_is_lost():
    stopped = threading.Event()
    store = AnsweringStore(SimpleNamespace(get=lambda key: stopped.wait(), add=lambda key, number: number), 0.1)
    with pytest.raises(td.DistStoreError) as raised:
        store.get("taken")
    stopped.set()
    assert is_lost(raised.value) and store.add("taken", 1) == 1


@pytest.mark.parametrize("how", ["target_met", "target_not_met", "diverged", "won", 7, "failed"])
def test_a_stranger_cannot_leave_a_result(how):
    store = td.HashStore()
    store.set("news/0", json.dumps([how, "\x1b[31mred", 1]))
    with pytest.raises(Stopped) as found, Alarm(store, 0, 2).first_failure():
        raise ValueError("a consequence")
    assert found.value.ending == Ending("failed", "rank 1: [31mred")


def test_an_unreadable_note_is_shown_by_one_rank(capsys):
    store = td.HashStore()
    store.set("news/0", "\x80 no note")
    for rank in (1, 0):
        assert Alarm(store, rank, 2).report_error(ValueError("a consequence")).exit_status == 1
    told = capsys.readouterr().err
    assert told.startswith("rank 0: stopped because of an unreadable note") and told.count("\n") == 1


def test_an_error_after_another_rank_has_left_is_shown(capsys):
    store = td.HashStore()
    with Alarm(store, 1, 1):
        pass
    assert Alarm(store, 0, 1, (ValueError,)).report_error(ValueError("mine")).exit_status == 1
    assert capsys.readouterr().err == "rank 0: error: mine\n"


def test_ranks_that_have_seen_the_loss_diverge_say_so():
    """The others see it, too, and perhaps a moment before."""
    store, diverged = td.HashStore(), FloatingPointError("the loss is nan")
    endings = [Alarm(store, rank, 2).report_error(diverged) for rank in (1, 0)]
    assert [ending.how for ending in endings] == ["diverged", "diverged"]


def test_the_failure_of_the_job_outlives_a_part(monkeypatch):
    monkeypatch.setattr(STOP, "failure", job := Stopped(Ending("failed", "rank 3: no space")))
    store = td.HashStore()
    with Alarm(store, 0, 1):
        pass
    assert STOP.failure is job
