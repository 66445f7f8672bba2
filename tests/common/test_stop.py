"""Stop signals: remembered, raised where that is safe, and only once."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from common.ending import Ending
from common.processes import in_processes, in_threads
from common.stop import NAMES, STOP, StopAsked, find_signals
from tests.problems import ROOT


@pytest.mark.parametrize("number", find_signals(NAMES))
def test_a_signal_is_remembered_and_raised_where_that_is_safe(number):
    around = signal.signal(number, signal.SIG_DFL)  # nohup ignores one
    before = signal.getsignal(number)
    with STOP.listening():
        signal.raise_signal(number)
        assert STOP.number == number
        STOP.check()
        with pytest.raises(StopAsked, match=f"stopped by {number.name}"), STOP.interrupting():
            raise AssertionError("not reached")
        signal.raise_signal(number)  # the same press, or the scheduler's second one
    assert (STOP.number, signal.getsignal(number)) == (0, before)
    signal.signal(number, around)


def test_a_signal_of_one_training_does_not_stop_the_next():
    for _ in range(50):
        with STOP.listening():
            assert STOP.number == 0
            signal.raise_signal(signal.SIGUSR1)
        with STOP.listening():
            time.sleep(0.001)  # lets the threads run
            assert STOP.number == 0


def test_a_signal_interrupts_once_and_cleaning_up_is_left_alone():
    cleaned = []
    with STOP.listening(), pytest.raises(StopAsked), STOP.interrupting():
        try:
            signal.raise_signal(signal.SIGUSR1)
            STOP.check()
        finally:
            signal.raise_signal(signal.SIGTERM)
            STOP.check()
            cleaned.append(STOP.number)
    assert cleaned == [signal.SIGUSR1]


def test_a_wait_is_interrupted():
    begin = time.monotonic()
    with STOP.listening(), pytest.raises(StopAsked), STOP.interrupting():
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        STOP.sleep(60)
    assert time.monotonic() - begin < 30


def test_the_failure_of_another_rank_is_raised_wherever_the_run_looks():
    with STOP.deferring(), pytest.raises(KeyError):
        STOP.failure = KeyError("of another rank")
        STOP.check()
    assert STOP.failure is None


def test_signals_are_chosen_and_an_ignored_one_stays_ignored():
    before, of_term = signal.signal(signal.SIGHUP, signal.SIG_IGN), signal.getsignal(signal.SIGTERM)
    try:
        with STOP.listening():
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            STOP.choose_signals(["USR2", "HUP"])
            assert signal.getsignal(signal.SIGTERM) == of_term
            signal.raise_signal(signal.SIGUSR2)
            assert STOP.number == signal.SIGUSR2
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_interrupts_a_run_that_began_where_an_error_was_handled():
    try:
        raise ValueError("no such run")
    except ValueError:
        with STOP.listening(), pytest.raises(StopAsked), STOP.interrupting():
            signal.raise_signal(signal.SIGUSR1)
            try:
                raise OSError("cleaned up without an interruption")
            except OSError:
                STOP.check()
            STOP.check()
            pytest.fail("not interrupted")


def test_a_training_in_a_thread_leaves_the_signals_to_the_main_thread():
    begun, end = threading.Event(), threading.Event()

    def train():
        with STOP.listening(), STOP.deferring():
            begun.set()
            end.wait(30)

    with ThreadPoolExecutor(1) as pool:
        training = pool.submit(train)
        assert begun.wait(30)
        with STOP.listening(), pytest.raises(StopAsked), STOP.interrupting():
            end.set()
            training.result()
            signal.raise_signal(signal.SIGTERM)


def test_the_result_in_one_record_is_passed_on_to_the_next(monkeypatch):
    statuses, told = [], []
    monkeypatch.setattr("common.stop.os._exit", statuses.append)
    result = Ending("target_not_met", epochs=3)
    with STOP.recording(lambda ending: told.append(ending) or ending), STOP.recording(lambda _: result):
        STOP.end_process(Ending("stopped", "SIGTERM"), "ended")
    assert (statuses, told) == ([4], [result])
    with STOP.listening():
        STOP.exit_status = 0  # all is done but the clean-up
        STOP.end_process(Ending("stopped", "SIGTERM"), "ended")
    assert (statuses.pop(), STOP.exit_status) == (0, None)


def test_processes_are_ended_with_the_work_that_needs_them():
    with STOP.listening(), pytest.raises(StopAsked), STOP.interrupting():
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
        list(in_processes(time.sleep, [60, 60], workers=2))


def test_the_work_of_threads_is_ended_and_not_finished():
    done = []

    def work(number):
        time.sleep(0.02)
        done.append(number)
        return -number

    assert list(in_threads(work, [1, 2, 3], 2)) == [-1, -2, -3]
    with STOP.listening(), pytest.raises(StopAsked), STOP.interrupting():
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        list(in_threads(work, range(3000), 2))
    assert len(done) < 1000
    with pytest.raises(ZeroDivisionError):
        list(in_threads(lambda number: 1 // number, [1, 0], 2))


# The main thread hears no signal in a call of C, such as a collective with a lost rank; here another thread's lock.
STUCK = """
import sys, threading
from common import stop
stop.DEADLINE_S, stop.SAME_S = 0.5, 0.1

def record(ending):
    print(ending.how, ending.cause, flush=True)
    return ending

stop.STOP.listen()
with stop.STOP.recording(record):
    print("ready", flush=True)
    while True:
        threading.Lock().acquire(timeout=60)
"""


@pytest.mark.parametrize(("numbers", "cause"), [([signal.SIGTERM], "SIGTERM"), ([signal.SIGINT] * 2, "SIGINT")])
def test_what_is_stuck_is_ended_with_a_record(numbers, cause):
    process = subprocess.Popen([sys.executable, "-c", STUCK], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    for number in numbers:
        process.send_signal(number)
        time.sleep(0.2)
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (3, f"stopped {cause}\n")


def test_one_press_is_not_a_second_one_although_it_is_heard_late():
    """A call of C that keeps Python's lock: the thread hears the first Ctrl-C only at its end."""
    code = (
        "import signal; from common import stop; stop.SAME_S = 0.05; stop.STOP.listen();"
        "signal.raise_signal(signal.SIGINT); sum(range(2 * 10**7)); stop.time.sleep(0.2); print(int(stop.STOP.number))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("2\n", "")


FINISHING = """
import os, signal, time
from common import stop
stop.DEADLINE_S = 0.5
stop.STOP.listen()
with stop.STOP.allow_finishing():  # before the signal: this process may be without a core for longer than the deadline
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(1)
    stop.STOP.check()
for _ in range(20):
    time.sleep(0.1)
    stop.STOP.check()
print("saved", flush=True)
"""


def test_a_run_that_saves_or_looks_at_the_flag_has_longer():
    done = subprocess.run([sys.executable, "-c", FINISHING], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "saved\n"), done.stderr


def test_usr2_prints_all_stacks():
    process = subprocess.Popen([sys.executable, "-c", STUCK], cwd=ROOT, stdout=-1, stderr=-1, text=True)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGUSR2)
    while "in <module>" not in process.stderr.readline():
        assert process.poll() is None
    process.kill()
    process.communicate()


def catches(process, number):
    """Tell whether a process catches a signal (proc(5))."""
    caught = Path(f"/proc/{process.pid}/status").read_text().partition("SigCgt:")[2].split()[0]
    return int(caught, 16) >> (number - 1) & 1


@pytest.mark.exhaustive
@pytest.mark.parametrize("after_s", [0.0, 0.5, 1.2])
def test_a_signal_during_the_imports_stops_the_run_in_order(tmp_path, after_s):
    words = f"-m cosmoflow.train mini output_dir={tmp_path}/run data.data_dir={tmp_path}/d".split()
    process = subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=-1, stderr=-1, text=True)
    while not catches(process, signal.SIGUSR1):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    time.sleep(after_s)
    process.send_signal(signal.SIGUSR1)
    _, err = process.communicate(timeout=60)
    # A fast machine may be past its imports, and says that its data are not complete.
    assert process.returncode == 3 and err.endswith("stopped by SIGUSR1\n") and "Traceback" not in err, err
    assert not list(tmp_path.glob("run/*lease*"))
