"""Stop signals: remembered, raised where that is safe, and only once."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from common.stop import STOP, StopAsked

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_is_remembered_and_raised_where_that_is_safe(number):
    before = signal.getsignal(number)
    with STOP.listening():
        signal.raise_signal(number)
        assert STOP.number == number
        with pytest.raises(StopAsked, match=f"stopped by {number.name}"), STOP.interrupting():
            raise AssertionError("not reached")
        signal.raise_signal(number)  # the same press, or the scheduler's second one
    assert (STOP.number, signal.getsignal(number)) == (0, before)


def test_a_signal_interrupts_once_and_cleaning_up_is_left_alone():
    cleaned = []
    with STOP.listening(), pytest.raises(StopAsked), STOP.interrupting():
        try:
            signal.raise_signal(signal.SIGUSR1)
        finally:
            signal.raise_signal(signal.SIGTERM)
            cleaned.append(STOP.number)
    assert cleaned == [signal.SIGUSR1]


def test_a_lock_is_not_left_taken():
    """Some of the signals come within the code of a semaphore; its lock is free afterwards."""
    for after_us in range(100):
        semaphore = threading.Semaphore()
        with STOP.listening(), pytest.raises(StopAsked), STOP.interrupting():
            threading.Timer(after_us / 1e6, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            while True:
                semaphore.acquire()
                semaphore.release()
                sum(range(300))
        assert semaphore._cond.acquire(blocking=False), after_us
        semaphore._cond.release()


def test_a_signal_is_not_lost_where_python_drops_exceptions(capsys):
    class Dying:
        def __del__(self):
            signal.raise_signal(signal.SIGTERM)

    hook = sys.unraisablehook
    with STOP.listening(), pytest.raises(StopAsked), STOP.interrupting():
        Dying()
        time.sleep(5)
        raise AssertionError("not reached")
    assert sys.unraisablehook is hook and not capsys.readouterr().err


def test_a_wait_for_a_thread_is_interrupted():
    with STOP.listening(), pytest.raises(StopAsked), STOP.interrupting():
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        threading.Event().wait(60)


def test_pressing_ctrl_c_twice_does_not_wait(monkeypatch):
    monkeypatch.setattr("common.stop.SAME_S", 0.0)
    with STOP.listening(), STOP.deferring(), pytest.raises(StopAsked, match="SIGINT"):
        signal.raise_signal(signal.SIGINT)
        time.sleep(0.01)
        signal.raise_signal(signal.SIGINT)


def catches(process, number):
    """Tell whether a process catches a signal (proc(5))."""
    caught = Path(f"/proc/{process.pid}/status").read_text().partition("SigCgt:")[2].split()[0]
    return int(caught, 16) >> (number - 1) & 1


@pytest.mark.exhaustive
@pytest.mark.parametrize("after_s", [0.0, 0.5, 1.2])
def test_a_signal_during_the_imports_stops_the_run_in_order(tmp_path, after_s):
    command = [
        sys.executable,
        "-m",
        "cosmoflow.train",
        "mini",
        f"output_dir={tmp_path / 'run'}",
        f"data.data_dir={tmp_path}/d",
    ]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )
    while not catches(process, signal.SIGUSR1):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    time.sleep(after_s)
    process.send_signal(signal.SIGUSR1)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 3 and err == "stopped by SIGUSR1\n", err
    assert not list(tmp_path.glob("run/*lease*"))
