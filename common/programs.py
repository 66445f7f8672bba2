"""Ask programs of the system, such as nvidia-smi and git. There are three answers: yes, no and unknown.

That a program is not installed is an answer. That it fails, hangs or prints rubbish is none: what it would have told is
unknown.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread
from typing import IO, Final

from common.console import print_warning

LIMIT_S: Final = 5.0
KILL_S: Final = 0.5
"""For how long a killed program is waited for: in a call of a broken driver it stays until that returns."""
MOST_BYTES: Final = 1 << 20
QUOTED_LETTERS: Final = 200


@dataclass(frozen=True, slots=True)
class Answer:
    """What a program answered.

    name: of the program. output: what it printed, "" if there is a problem. problem: why there is no answer, in the
    program's words; "" if there is one. complaints: what it printed on standard error, with an answer or without.
    """

    name: str
    output: str = ""
    problem: str = ""
    complaints: str = ""
    is_installed: bool = True

    def explain_unread(self) -> str:
        """Return why nothing can be read of the answer, in the program's words."""
        return self.problem or f"gave an answer that cannot be used: {_shorten(f'{self.complaints} {self.output}')}"

    def warn_unread(self, consequence: str) -> None:
        """Warn that nothing can be read of the answer, unless the program is not installed."""
        if self.is_installed:
            print_warning(f"{self.name} is installed, but {self.explain_unread()}; {consequence}")


def ask_program(*command: str, limit_s: float | None = None, environment: Mapping[str, str] | None = None) -> Answer:
    """Run a program and return its answer; after `limit_s` it is killed, with what it has started.

    limit_s: default: LIMIT_S. environment: default: that of this process.
    """
    limit_s, environment = limit_s or LIMIT_S, os.environ if environment is None else environment
    # Popen would take a folder of the path that nobody may read for a program that cannot be run.
    if (program := shutil.which(command[0], path=environment.get("PATH"))) is None:
        return Answer(command[0], problem="is not installed", is_installed=False)
    end_s = time.monotonic() + limit_s
    try:
        process = subprocess.Popen(
            command,
            executable=program,
            bufsize=0,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**environment, "LC_ALL": "C"},
            start_new_session=True,
        )
    except OSError as error:
        return Answer(command[0], problem=f"cannot be run: {error.strerror}")
    # Threads, since Windows has no other way to wait for two pipes. Each ends with the last holder of its pipe.
    pipes = {process.stdout: bytearray(), process.stderr: bytearray()}
    readers = [Thread(target=_read_pipe, args=pipe, daemon=True) for pipe in pipes.items()]
    try:
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(max(0.0, end_s - time.monotonic()))
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, end_s - time.monotonic()))
    finally:
        hangs = process.poll() is None or any(reader.is_alive() for reader in readers)
        with suppress(OSError, subprocess.TimeoutExpired):  # it has ended with all it started, or cannot be killed now
            os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
            process.wait(KILL_S)
    output, complaints = (bytes(printed).decode(errors="replace") for printed in pipes.values())
    status = process.returncode or 0
    problems = {
        f"printed {MOST_BYTES:,} bytes or more": max(map(len, pipes.values())) >= MOST_BYTES,
        f"gave no answer within {limit_s:g} s": hangs,
        f"was killed by signal {-status}": status < 0,
        f"ended with exit status {status}": status > 0,
        "printed what is no text": "\N{REPLACEMENT CHARACTER}" in output,
    }
    problem = next((problem for problem, holds in problems.items() if holds), "")
    if problem:  # nvidia-smi complains on standard output
        return Answer(command[0], "", f"{problem}: {_shorten(f'{complaints} {output}')}", complaints)
    return Answer(command[0], output, "", complaints)


def _read_pipe(pipe: IO[bytes], printed: bytearray) -> None:
    with pipe:
        while len(printed) < MOST_BYTES and (part := pipe.read(1 << 16)):
            printed.extend(part)


def _shorten(text: str) -> str:
    """Return the end of what a program has said on one line: the last words of a traceback tell most."""
    words = " ".join(text[-4 * QUOTED_LETTERS :].split())  # the rest may be long
    return "".join(filter(str.isprintable, words))[-QUOTED_LETTERS:] or "it printed nothing"
