"""A headless Chromium, driven over a pipe with the DevTools protocol; the standard library is enough."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync --disable-dev-shm-usage --remote-debugging-pipe --window-size=1280,1600"
).split()
PATIENCE_S = 60


def chromium() -> str | None:
    """Return the path of a Chromium, None where there is none."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Tab:
    """A page in the browser. `problems`: what its console reported."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, os.fdopen(answers, "rb")
        self._number, self._session, self._carry = 0, "", b""
        self.problems: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return the browser's answer to a command; RuntimeError if it refuses."""
        self._number += 1
        session = {"sessionId": self._session} if self._session else {}
        message = {"id": self._number, "method": method, "params": parameters, **session}
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._carry:
            read = self._answers.read1(1 << 16)
            if not read:
                raise RuntimeError("the browser has gone")
            self._carry += read
        text, _, self._carry = self._carry.partition(b"\0")
        message = json.loads(text)
        if message.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"):
            self.problems.append(json.dumps(message["params"]))
        return message

    def open(self, address: str) -> None:
        """Load a page and wait until it is there."""
        self.call("Page.navigate", url=address)
        self.wait_until(f"document.readyState + location.href == 'complete{address}'")

    def wait_until(self, expression: str) -> None:
        """Wait until a JavaScript expression is true."""
        until = time.monotonic() + PATIENCE_S
        while not self.value(expression):
            if time.monotonic() > until:
                raise RuntimeError(f"not true after {PATIENCE_S} s: {expression}")
            time.sleep(0.02)

    def value(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")


@contextmanager
def browser(profile: Path) -> Iterator[Tab]:
    """Start a browser with a new profile; it ends with the block."""
    command = chromium()
    assert command, "no Chromium"
    (to_browser, commands), (answers, from_browser) = os.pipe(), os.pipe()
    # The protocol's pipes are the descriptors 3 and 4 of the browser.
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_browser, from_browser)]
    start = f"import os, sys; os.dup2({ends[0]}, 3); os.dup2({ends[1]}, 4); os.execv(sys.argv[1], sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", start, command, *ARGUMENTS, f"--user-data-dir={profile}"],
        pass_fds=ends,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for end in ends:
        os.close(end)
    os.close(to_browser)
    os.close(from_browser)
    try:
        yield Tab(commands, answers)
    finally:
        os.close(commands)
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
