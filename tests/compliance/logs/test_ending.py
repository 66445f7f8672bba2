"""Why a run failed: the texts that launchers print when a job dies, and what the checker makes of them."""

from pathlib import Path

import pytest

from compliance.check import main
from compliance.engine import Options, check_paths
from compliance.logs.log import parse_log
from compliance.samples.log import SampleLog
from compliance.samples.package import SamplePackage
from tests.compliance.judged import find_all

LIMIT = b"slurmstepd: error: *** JOB 7 ON nid001 CANCELLED AT 2026-11-30T05:18:01 DUE TO TIME LIMIT ***\n"
LINES = SampleLog().bytes().splitlines(keepends=True)
BEGUN = b"".join(LINES[:60])
ABORTED = SampleLog().last_evaluation(0.5).meta("run_stop", "status", "aborted").bytes()
REAL = Path(__file__).with_name("ends.txt").read_text().split("##### ")[1:]
"""What Slurm 22.05, torch 2.13, Open MPI 4.1 and MPICH 4.0 printed of jobs that died: title, words, text."""
WRITTEN = [
    "PBS | time limit | walltime 3620\n=>> PBS: job killed: walltime 3620 exceeded limit 3600\nTerminated\n",
    "LSF | limits | RUNLIMIT\nTERM_RUNLIMIT: job killed after reaching LSF run time limit.\nExit code: 140\n",
    "LSF's memory | memory of the host | MEMLIMIT\nTERM_MEMLIMIT: job killed after reaching LSF memory usage limit.\n",
    "kernel | memory of the host | oom-kill\njob.sh: line 3: 47 Killed\nkernel: oom-kill:constraint=CONSTRAINT_MEMCG\n",
    "Slurm's memory | memory of the host | oom_kill\nsrun: error: nid001: task 0: Exited with exit code 137\n"
    "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.\n",
    "container | SIGKILL | code 137\ncontainer exited: exit code 137\n",
    "accelerator | memory of the accelerator | rank3\n[rank0]: Traceback (most recent call last):\n"
    "[rank0]: RuntimeError: Connection closed by peer\n[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to\n",
    "NCCL | waited for another | ALLREDUCE\n[rank1]:[E] [PG ID 0 Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=3, OpType=ALLREDUCE) ran for 600004 ms\nterminate called after throwing an instance of 'Error'\n",
    "peer | connection to another rank | rank0\n[rank0]: Traceback (most recent call last):\n"
    "[rank0]: RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:16296\n",
    "first of two | Python ended | KeyError\nKeyError: 'climate'\n[rank1]: ValueError: expected more\n",
    "disk | disk or the quota | Errno 28\nOSError: [Errno 28] No space left on device: 'output/checkpoint.pt'\n",
    "quota | disk or the quota | quota exceeded\nOSError: [Errno 122] Disk quota exceeded\n",
    "preempted | preempted | PREEMPTION\nslurmstepd: error: *** JOB 9 CANCELLED AT 2026-11-30 DUE TO PREEMPTION ***\n",
    "/dev/shm | /dev/shm | Bus error\nRuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error.\n",
    "Ctrl-C | interrupted | KeyboardInterrupt\nTraceback (most recent call last):\nKeyboardInterrupt\n",
    "told to end | SIGTERM | signal 15\nYOUR APPLICATION TERMINATED WITH THE EXIT STRING: Terminated (signal 15)\n",
    "crash | crashed | core dumped\njob.sh: line 3: 47 Aborted                 (core dumped) python\n",
]


ENDS = {
    title: (BEGUN + text.encode(), "ORD05", *title.split(" | ")[1:])
    for title, _, text in (end.partition("\n") for end in (*REAL, *WRITTEN))
}
LIMITED = {
    "before run_start": (b"".join(LINES[:20]) + LIMIT, "ORD05"),
    "before the first epoch": (b"".join(LINES[:24]) + LIMIT, "ORD05"),
    "after half a record": (BEGUN + LINES[60][:-30] + b"\n" + LIMIT, "ORD05"),
    "in a record": (BEGUN + LINES[60][:-30] + LIMIT, "FRM10"),
    "in a file that was cut": (BEGUN + LIMIT[:-1], "FRM10"),
    "while another rank logs": (BEGUN + LIMIT + b"".join(LINES[60:63]), "ORD05"),
    "before records": (b"loading modules\n" + LIMIT, "FRM03"),
    "after much text": (BEGUN + b"a line of another program\n" * 100_000 + LIMIT, "ORD05"),
    "with run_stop": (ABORTED + LIMIT, "QUA03"),
}
ENDS |= {title: (*case, "time limit", "DUE TO TIME LIMIT") for title, case in LIMITED.items()}


@pytest.mark.parametrize(("data", "rule", "words", "of_line"), ENDS.values(), ids=[*ENDS])
def test_the_only_cause_is_why_the_run_ended(data, rule, words, of_line, tmp_path):
    (tmp_path / "result_0.txt").write_bytes(data)
    report = check_paths([tmp_path / "result_0.txt"], Options())
    (cause,) = [finding for finding in report.findings if finding.severity == "error" and not finding.cause]
    assert cause.rule == rule and words in cause.message and of_line in cause.message
    assert of_line in data.splitlines()[cause.line - 1].decode() and "run_stop" not in cause.fix


@pytest.mark.parametrize(
    "data",
    [
        b"".join(LINES) + LIMIT,
        BEGUN,
        BEGUN + b"".join(line + b"100 steps done, 0 errors, OOM killer is off\n" for line in LINES[60:-1]),
        BEGUN + LIMIT + b"".join(LINES[60:-1]),
        ABORTED + b"srun: error: nid001: task 0: Exited with exit code 4\n",
        SampleLog().meta("run_stop", "status", "aborted").meta("run_stop", "ended", "target_not_met").bytes() + LIMIT,
        b"Terminated, says a text without records\n",
    ],
    ids=["success", "no text", "harmless text", "long before", "status of a launcher", "result", "no log"],
)
def test_a_run_that_did_not_fail_or_whose_text_does_not_tell_has_no_end(data):
    assert parse_log(data).end is None


def test_the_one_run_that_may_fail_says_why_it_did(tmp_path):
    package = SamplePackage().edit(3, lambda log: log.raw("run_stop", lambda line: LIMIT))
    (failing,) = find_all(check_paths([package.write(tmp_path / "Example")], Options()), "RUN02")
    assert "result_3.txt (Slurm ended the run at its time limit)" in failing.message


def test_a_run_that_is_watched_is_told_to_have_ended(tmp_path, capsys):
    (tmp_path / "live.txt").write_bytes(BEGUN + b"KeyError: 7\n" + LIMIT)
    assert main(["--follow", str(tmp_path / "live.txt"), "--follow-timeout", "0.2"]) == 1
    assert "will fail: error ORD05 Slurm ended the run at its time limit" in capsys.readouterr().out
