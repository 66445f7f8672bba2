"""The rule files of mlperf-logging and its checker, asked about logs that need no file."""

from __future__ import annotations

import ast
import importlib
import io
import logging
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

ROUND: Final = re.compile(r"(training|hpc)_(\d+\.\d+\.\d+)")
OTHER_FORMAT: Final = "training_0.6.0"
"""Its logs have lines that mlperf-logging no longer writes."""
AGGREGATED: Final = "aggregated_eval_accuracy"
"""A key that no log has: the rule files make it from the lines of eval_accuracy that name a metric."""
State = dict[str, Any]
Value = dict[str, Any]


@dataclass
class Event:
    """A line of a log. delay: milliseconds since the line before."""

    key: str
    value: Any = None
    metadata: dict[str, Any] = field(default_factory=dict)
    kind: str = "event"
    delay: int = 1000


Log = list[Event]


@dataclass(frozen=True)
class Rule:
    """One demand of a rule file. part: REQ, CHECK, FIRST_CHECK, ATLEAST_ONE_CHECK or END; key: "" for END."""

    file: str
    key: str
    part: str
    text: str
    number: int = 1

    @property
    def name(self) -> str:
        """Return a name for files."""
        stem = Path(self.file).stem
        end = re.sub(r"\W+", "_", self.text).strip("_").lower() if self.part == "REQ" else str(self.number)
        return "_".join(filter(None, (stem, self.key, self.part.lower(), end)))


@dataclass
class Tested:
    """An expression that the checker has evaluated on a line. state: what it saw, if that was asked for."""

    file: str
    line: int
    key: str
    text: str
    passed: bool
    value: Value
    time: float
    state: State | None


@dataclass
class Answer:
    """What the checker says. failed: (file, key, text) of each rule, text "REQ" or "POST" where that is the part."""

    valid: bool = True
    crash: str = ""
    failed: list[tuple[str, str, str]] = field(default_factory=list)
    tested: list[Tested] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    states: dict[str, State] = field(default_factory=dict)

    def breaks(self, rule: Rule) -> bool:
        """Return whether this rule is among those that failed."""
        return any(
            file == rule.file and key in ("", rule.key) and text == ("REQ" if rule.part == "REQ" else rule.text)
            for file, key, text in self.failed
        )

    @property
    def badness(self) -> tuple[bool, int]:
        """Return a measure of how far the log is from a valid one."""
        return bool(self.crash), len(set(self.failed))


def listed(tests: Any) -> list[str]:
    """Return what a rule file gives as one expression or as several."""
    return [tests] if isinstance(tests, str) else list(tests or ())


class Committee:
    """The package mlperf_logging in a folder. Rule files are parsed once; else its checker is as it comes."""

    def __init__(self, package: Path) -> None:
        if str(package.parent) not in sys.path:
            sys.path.insert(0, str(package.parent))
        self.checker: Any = importlib.import_module("mlperf_logging.compliance_checker.mlp_compliance")
        self.folder = package / "compliance_checker"
        self.parsed: dict[str, Any] = {}
        self.opened: list[str] = []
        official = self.checker.yaml

        def load(stream: Any, **options: Any) -> Any:
            name = str(Path(stream.name).resolve().relative_to(self.folder))
            self.opened.append(name)
            if name not in self.parsed:
                self.parsed[name] = official.load(stream, **options)
            return self.parsed[name]

        self.checker.yaml = SimpleNamespace(load=load, BaseLoader=official.BaseLoader)

    def rounds(self) -> list[tuple[str, str]]:
        """Return usage and version of each round whose logs can be written, oldest first."""
        found = [match.groups() for path in self.folder.iterdir() if (match := ROUND.fullmatch(path.name))]
        known = [(usage, version) for usage, version in found if f"{usage}_{version}" != OTHER_FORMAT]
        return sorted(known, key=lambda each: (each[0], [int(part) for part in each[1].split(".")]))

    def records(self, file: str, part: str = "KEY") -> list[dict[str, Any]]:
        """Return the records of a rule file; of two for the same key the last, as the checker."""
        if file not in self.parsed:
            with (self.folder / file).open(encoding="utf-8") as stream:
                self.checker.yaml.load(stream, Loader=self.checker.yaml.BaseLoader)
        found = [record[part] for record in self.parsed[file] or () if part in record]
        return list({record.get("NAME", ""): record for record in found}.values())

    def rules(self, file: str) -> Iterator[Rule]:
        """Yield every demand of a rule file that a log can fail."""
        for record in self.records(file):
            key, required = record["NAME"], record.get("REQ", "OPTIONAL").strip()
            if required != "OPTIONAL":
                yield Rule(file, key, "REQ", "missing")
            if required == "EXACTLY_ONE":
                yield Rule(file, key, "REQ", "twice")
            for part in ("CHECK", "FIRST_CHECK", "ATLEAST_ONE_CHECK"):
                for number, text in enumerate(listed(record.get(part)), 1):
                    yield Rule(file, key, part, text, number)
        for record in self.records(file, "END"):
            for number, text in enumerate(listed(record.get("CHECK")), 1):
                yield Rule(file, "", "END", text, number)

    def ask(self, usage: str, version: str, log: Log, keep_states: bool = False) -> Answer:
        """Let the checker judge the log; a crash is an answer, too."""
        checker = self.checker.make_checker(usage, version, quiet=True, werror=False)
        answer = Answer()
        watch(checker, answer, keep_states)
        self.opened.clear()
        self.checker.enqueued_configs.clear()
        lines = list(self._lines(version, log))
        try:
            checker.check_loglines(lines, f"{usage}_{version}/common.yaml")
        except Exception as error:
            answer.crash = f"{type(error).__name__}: {error}".replace(f"{self.folder}/", "")
        self.checker.enqueued_configs.clear()
        answer.valid = not answer.crash and not checker.has_messages()
        answer.files = list(self.opened)
        return answer

    def judge(self, usage: str, version: str, path: Path) -> tuple[bool, str | None]:
        """Return the checker's verdict on a file, and of a crash what it was; that counts as invalid."""
        checker = self.checker.make_checker(usage, version, quiet=True, werror=False)
        try:
            valid, *_ = self.checker.main(str(path), f"{usage}_{version}/common.yaml", checker)
        except Exception as error:
            self.checker.enqueued_configs.clear()
            return False, f"{type(error).__name__}: {error}".replace(f"{self.folder}/", "")
        return bool(valid), None

    def _lines(self, version: str, log: Log) -> Iterator[Any]:
        parser = f"mlperf_logging.compliance_checker.mlp_parser.ruleset_{version.replace('.', '')}"
        line_type = importlib.import_module(parser).LogLine
        for number, (time, event) in enumerate(timed(log)):
            yield line_type("", float(time), event.key, {"value": event.value, "metadata": event.metadata}, number)


def watch(checker: Any, answer: Answer, keep_states: bool) -> None:
    """Have a checker say in the answer which rules failed, and what it evaluated."""
    current = {"file": "", "text": ""}
    check_file, check_line, check_end = checker.configured_checks, checker.run_check_eval, checker.run_check_end

    def configured_checks(lines: Any, path: str) -> None:
        current["file"] = "/".join(Path(path).parts[-2:])
        check_file(lines, path)

    def put_message(message: str, key: str | None = None) -> None:
        least = re.match(r"Failed checks for (\S+) : (.*)", message, re.DOTALL)
        if least:
            key, text = least.groups()
        elif message.startswith("Required"):
            text = "REQ"
        else:
            text = current["text"] or "POST"
        for name in [key] if key else re.findall(r"'(\w+)'", message) if text == "REQ" else [""]:
            answer.failed.append((current["file"], name, text))
        type(checker).put_message(checker, message, key if not least else None)

    def run_check_eval(line: Any, tests: Any, state: State) -> None:
        answer.states[current["file"]] = state
        for text in listed(tests):
            seen = state | {"s": copy_state(state["s"])} if keep_states else None
            before, current["text"] = len(answer.failed), text
            check_line(line, [text], state)
            passed = len(answer.failed) == before
            value, time = line.value, line.timestamp
            answer.tested.append(Tested(current["file"], line.lineno, line.key, text, passed, value, time, seen))
        current["text"] = ""

    def run_check_end(tests: Any, state: State) -> None:
        for text in listed(tests):
            current["text"] = text
            check_end([text], state)
        current["text"] = ""

    checker.configured_checks, checker.put_message = configured_checks, put_message
    checker.run_check_eval, checker.run_check_end = run_check_eval, run_check_end


def copy_state(state: State) -> State:
    return {name: list(value) if isinstance(value, list) else value for name, value in state.items()}


def timed(log: Log, start: int = 1_700_000_000_000) -> Iterator[tuple[int, Event]]:
    """Yield the events with their times in milliseconds."""
    for event in log:
        start += event.delay
        yield start, event


def states_read(text: str) -> set[str]:
    """Return the names that an expression reads in `s`."""
    return set(re.findall(r"""\bs(?:\.get\(|\[)['"](\w+)['"]""", text))


def states_written(text: str) -> set[str]:
    """Return the names that statements write in `s`."""
    return set(re.findall(r"\bs\[['\"](\w+)['\"]\]\s*\+?=(?!=)", text))


def tensors_wanted(text: str) -> list[str]:
    """Return the strings that the check at the end of a log compares with those that the log has named."""
    lists = [node for node in ast.walk(ast.parse(text.strip(), mode="eval")) if isinstance(node, ast.List)]
    return [str(element.value) for each in lists for element in each.elts if isinstance(element, ast.Constant)]


class Writer:
    """Writes logs by mlperf-logging's own library."""

    def __init__(self, root: Path) -> None:
        mllog = importlib.import_module("mlperf_logging.mllog")
        logger = logging.getLogger("committee")
        logger.propagate = False
        logger.setLevel(logging.INFO)
        self.stream = io.StringIO()
        logger.handlers = [logging.StreamHandler(self.stream)]
        mllog.config(logger=logger, root_dir=str(root))
        mllogger = mllog.get_mllogger()
        self.log: dict[str, Callable[..., None]] = {
            "event": mllogger.event,
            "start": mllogger.start,
            "end": mllogger.end,
        }

    def write(self, path: Path, log: Log) -> None:
        """Write a log to a file."""
        self.stream.seek(0)
        self.stream.truncate()
        for time, event in timed(log):
            self.log[event.kind](event.key, event.value, metadata=event.metadata, time_ms=time)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.stream.getvalue(), encoding="utf-8")
