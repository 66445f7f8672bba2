"""A valid log for a benchmark's rule files, found by repairing what the official checker says."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from committee_rules import (
    AGGREGATED,
    Answer,
    Committee,
    Event,
    Log,
    Tested,
    listed,
    states_read,
    states_written,
    tensors_wanted,
)
from committee_values import (
    MISSING,
    Place,
    candidates,
    choices_for,
    fixed_parts,
    holds,
    judge,
    paths_in,
    unique,
    variants,
)

EVALUATIONS: Final = 3
SAMPLES: Final = 102_400
"""Samples of an epoch, where the rules want no other number."""
REPAIRS: Final = 80
"""Steps after which a log is given up."""
TRIES: Final = 60
"""Changes of one value on which others depend."""
FRAME: Final = ("init_start", "init_stop", "run_start", "run_stop")
INNER: Final = ("block_start", "epoch_start", "epoch_stop", "eval_start", "eval_stop", "block_stop")
COUNTS: Final = ("epoch_num", "samples_count", "step_num", "first_epoch_num")
VALUES: Final = {
    "global_batch_size": 256,
    "train_samples": 1_000_000,
    "eval_samples": 10_000,
    "learning_rate": 0.001,
    "epsilon": 1e-8,
    "beta_1": 0.9,
    "beta_2": 0.999,
    "weight_decay": 0.01,
    "_betas": [0.9, 0.999],
    "accumulation_steps": 1,
    "boundary_steps": [10, 20],
    "_steps": 100,
    "boundary_epochs": [10, 20],
    "_epochs": 5,
    "seed": 42,
    "_name": "adam",
    "_org": "example",
    "_platform": "example",
    "_status": "onprem",
    "filename": "example.yaml",
}
"""First values, by how a key ends."""


@dataclass(frozen=True)
class Task:
    """The log to make. chosen: values of keys on which it depends what rules there are, as the scheduler."""

    usage: str
    version: str
    division: str
    benchmark: str
    chosen: tuple[tuple[str, Any], ...] = ()

    @property
    def round(self) -> str:
        return f"{self.usage}_{self.version}"

    @property
    def folder(self) -> str:
        return f"{self.division}_{self.benchmark}"

    @property
    def variant(self) -> str:
        return "_".join(str(value) for _, value in self.chosen)


@dataclass
class Made:
    """A log, and what the checker says about it: "" if it is valid."""

    task: Task
    log: Log
    answer: Answer
    problem: str = ""
    files: list[str] = field(default_factory=list)


class Maker:
    """Makes a log valid, step by step."""

    def __init__(self, committee: Committee, task: Task) -> None:
        self.committee, self.task = committee, task
        fixed = {"submission_division": task.division, "submission_benchmark": task.benchmark}
        self.chosen = fixed | dict(task.chosen)
        self.log: Log = skeleton(task)
        self.files: list[str] = []
        self.tried: set[tuple[str, str, str]] = set()
        self.written_in_run: set[str] = set()

    def ask(self, log: Log, keep_states: bool = False) -> Answer:
        return self.committee.ask(self.task.usage, self.task.version, log, keep_states)

    def make(self) -> Made:
        """Return the log, valid or not."""
        answer = self.ask(self.log, keep_states=True)
        valid: tuple[Log, Answer] | None = None
        for _ in range(REPAIRS):
            if new := [file for file in answer.files if file not in self.files]:
                self.files += new
                self._add_keys(new)
            elif answer.valid:
                valid = copy.deepcopy(self.log), answer
                if not self._reach_targets(answer):
                    break
            elif not self._repair(answer):
                break
            answer = self.ask(self.log, keep_states=True)
        if valid and not answer.valid:
            self.log, answer = valid
        if answer.valid:
            answer = self._align_counts(answer)
        problem = "" if answer.valid else answer.crash or "; ".join(": ".join(each) for each in answer.failed[:3])
        return Made(self.task, self.log, answer, problem, self.files)

    # -- keys -----------------------------------------------------------------------------------------------

    def _add_keys(self, files: list[str]) -> None:
        for file in files:
            for record in self.committee.records(file):
                self._add_key(record)
            for record in self.committee.records(file, "END"):
                self._add_tensors([name for text in listed(record.get("CHECK")) for name in tensors_wanted(text)])
        self._sort_settings()

    def _add_key(self, record: dict[str, Any]) -> None:
        key = record["NAME"]
        if key == AGGREGATED:
            self._aggregate(record)
            return
        tests = tests_of(record)
        fields = {str(path[1]): None for text in tests for path in paths_in(text) if path[0] == "metadata"}
        inside = unique(path[1] for text in tests for path in paths_in(text) if path[0] == "value" and len(path) > 1)
        present = [event for event in self.log if event.key == key]
        if not present:
            value = self.chosen.get(key, next((v for end, v in VALUES.items() if key.endswith(end)), 1))
            if counted := set(fields) & set(COUNTS):
                present = self._add_to_evaluations(key, sorted({"epoch_num", *counted} - {"samples_count"}))
            else:
                present = [Event(key, value, kind=kind_of(key) if value == 1 else "event")]
                self._insert(present[0], tests)
        for number, event in enumerate(present, 1):
            for name in fields:
                first = {"status": "success", "samples_count": number * SAMPLES, "step_num": number * 100}.get(name, 1)
                event.metadata.setdefault(name, first)
            if inside and all(isinstance(name, str) for name in inside) and not isinstance(event.value, dict):
                event.value = dict.fromkeys(inside, 0.5)

    def _insert(self, event: Event, tests: list[str]) -> None:
        """Put a setting before the end of the initialization, or what belongs to the run into that."""
        of_run = {"run_started", *self.written_in_run}
        if of_run & {name for text in tests for name in states_read(text)}:
            self.written_in_run |= self.dependencies()[1].get(event.key, set())
            at = next(i for i, each in enumerate(self.log) if each.key == "block_start")
        else:
            at = next(i for i, each in enumerate(self.log) if each.key == "init_stop")
        self.log.insert(at, event)

    def _add_to_evaluations(self, key: str, counted: list[str]) -> list[Event]:
        events = []
        for number in range(1, EVALUATIONS + 1):
            ends = [i for i, event in enumerate(self.log) if event.key == "eval_stop"]
            events.append(Event(key, 0.5, dict.fromkeys(counted, number)))
            self.log.insert(ends[number - 1], events[-1])
        return events

    def _aggregate(self, record: dict[str, Any]) -> None:
        """Log each evaluation once for each metric."""
        names = [str(path[1]) for text in tests_of(record) for path in paths_in(text) if path[0] == "value"]
        count = next(name for name in names if name in COUNTS)
        metrics = [name for name in dict.fromkeys(names) if name != count]
        log: Log = []
        for event in self.log:
            if event.key == "eval_accuracy" and "metric" not in event.metadata:
                number = event.metadata["epoch_num"]
                fields = {count: number} | event.metadata
                log += [Event(event.key, 0.5, fields | {"metric": metric}) for metric in metrics]
            else:
                log.append(event)
        self.log = log

    def _add_tensors(self, names: list[str]) -> None:
        """Log each tensor once in place of the one line that there is."""
        at = next(i for i, event in enumerate(self.log) if "tensor" in event.metadata)
        one = self.log[at]
        self.log[at : at + 1] = [Event(one.key, None, one.metadata | {"tensor": name}, delay=10) for name in names]

    def _sort_settings(self) -> None:
        """Bring settings behind those that they depend on."""
        start, stop = (next(i for i, e in enumerate(self.log) if e.key == key) for key in ("init_start", "init_stop"))
        waiting, done = self.log[start + 1 : stop], []
        reads, writes = self.dependencies()
        while waiting:
            unset = {event.key: writes.get(event.key, set()) for event in waiting}
            free = (
                i
                for i, event in enumerate(waiting)
                if not any(reads.get(event.key, set()) & names for key, names in unset.items() if key != event.key)
            )
            done.append(waiting.pop(next(free, 0)))
        self.log[start + 1 : stop] = done

    def dependencies(self) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
        """Return what the rules of each key read in `s`, and what they write."""
        reads: dict[str, set[str]] = {}
        writes: dict[str, set[str]] = {}
        for record in (record for file in self.files for record in self.committee.records(file)):
            key = record["NAME"]
            for text in tests_of(record):
                reads.setdefault(key, set()).update(states_read(text))
            writes.setdefault(key, set()).update(states_written(record.get("POST", "")))
        return reads, writes

    def _align_counts(self, answer: Answer) -> Answer:
        """Have the samples go up from epoch to epoch, and all lines of one name the same, if that is valid."""
        log, reached = copy.deepcopy(self.log), [0]
        for number in range(1, EVALUATIONS + 1):
            own = [event for event in log if number in (event.metadata.get(name) for name in COUNTS[:1] + COUNTS[3:])]
            named = [event.metadata.get("samples_count", 0) for event in own if event.key not in INNER]
            step = max(reached[-1] - reached[-2], 1) if number > 1 else SAMPLES
            count = max(named, default=0)
            reached.append(count if count > reached[-1] else reached[-1] + step)
            for event in (event for event in own if "samples_count" in event.metadata):
                early = event.key in ("block_start", "epoch_start")
                event.metadata["samples_count"] = reached[-2] if early else reached[-1]
        aligned = self.ask(log, keep_states=True)
        if aligned.valid:
            self.log = log
        return aligned if aligned.valid else answer

    # -- values ---------------------------------------------------------------------------------------------

    def _repair(self, answer: Answer) -> bool:
        """Change one thing; return whether there was one to change."""
        for test in answer.tested:
            if test.passed or test.line < 0:
                continue
            event = self.log[test.line]
            if event.key not in self.chosen and (value := self._find_value(answer, test.line)):
                event.value, event.metadata = value["value"], value["metadata"]
                return True
            if self._repair_earlier(answer, test):
                return True
        return self._reach_targets(answer)

    def _find_value(self, answer: Answer, line: int) -> dict[str, Any] | None:
        """Return what the line may have so that all its tests hold, or else more of them than now."""
        tests = [test for test in answer.tested if test.line == line]
        paths = list(dict.fromkeys(path for test in tests if not test.passed for path in paths_in(test.text)))
        before = [event.metadata for event in self.log[:line] if event.key == self.log[line].key]
        more = [before[-1][path[1]] for path in paths if before and path[0] == "metadata" and path[1] in before[-1]]
        choices = choices_for(tests, paths)
        for path in paths:
            if more and path[0] == "metadata":  # counts go on
                numbers = [value for value in choices[path] if isinstance(value, int | float) and value >= 1]
                later = [n for n in numbers if n > more[0]] + [more[0] + n for n in numbers]
                choices[path] = unique([*later, *choices[path]])
        best, most = None, sum(test.passed for test in tests)
        for value in variants(tests[0].value, paths, choices):
            holding = sum(holds(test.text, value, test.state or {}, test.time) for test in tests)
            if holding > most:
                best, most = value, holding
            if most == len(tests):
                break
        return best

    def _repair_earlier(self, answer: Answer, test: Tested) -> bool:
        """Change a value that a failed test reads in `s`, if then less fails."""
        _, writes = self.dependencies()
        for name in sorted(states_read(test.text)):
            for line, event in enumerate(self.log):
                if name not in writes.get(event.key, ()) or line >= test.line:
                    continue
                own = [each for each in answer.tested if each.line == line]
                texts = [test.text, *(each.text for each in own)]
                values = candidates(texts, test.state or {}, [test.value["value"]])
                fits = (v for v in values if all(self._fits(each, v) for each in own))
                for value in itertools.islice(fits, TRIES):
                    log = copy.deepcopy(self.log)
                    log[line].value = value
                    if self.ask(log).badness < answer.badness:
                        self.log = log
                        return True
        return False

    @staticmethod
    def _fits(test: Tested, value: Any) -> bool:
        return holds(test.text, test.value | {"value": value}, test.state or {}, test.time)

    def _reach_targets(self, answer: Answer) -> bool:
        """Have the last evaluation reach what one must reach, and those before not, if they may."""
        for file in answer.files:
            for record in self.committee.records(file):
                text, key = record.get("ATLEAST_ONE_CHECK", ""), record["NAME"]
                if not text or (file, key, text) in self.tried:
                    continue
                self.tried.add((file, key, text))
                groups = holders(self.log, key)
                good = self.find_outcome(answer, file, record, True)
                bad = self.find_outcome(answer, file, record, False)
                if not groups or good is MISSING:
                    continue
                for group in groups:
                    assign(self.log, group, good if group is groups[-1] or bad is MISSING else bad)
                return True
        return False

    def find_outcome(self, answer: Answer, file: str, record: dict[str, Any], wanted: bool) -> Any:
        """Return a value of the key that reaches what at least one must, or does not."""
        text, key = record["ATLEAST_ONE_CHECK"], record["NAME"]
        tests = [test for test in answer.tested if test.key == key]
        if not tests:
            return MISSING
        state, own = answer.states[file], [test for test in tests if test.line == tests[-1].line]
        target = Tested(file, own[-1].line, key, text, False, own[-1].value, own[-1].time, state)
        paths = [path for path in paths_in(text) if path[0] == "value"]
        choices = choices_for([target, *own], paths)
        now = own[0].value
        if not wanted:  # a little off looks like an evaluation
            good = self.find_outcome(answer, file, record, True)
            now = now if good is MISSING else now | {"value": good}
            choices = {path: unique([*near(dig(now, path)), *choices[path]]) for path in paths}
        for value in itertools.chain([now], variants(now, paths, choices)):
            checks = all(holds(t.text, value, t.state or {}, t.time) for t in own if "value" in t.text)
            if checks and judge(text, value, state, 0.0) is wanted:
                return value["value"]
        return MISSING


def near(value: Any) -> list[Any]:
    return [round(value * 0.9, 6), round(value * 1.1, 6)] if isinstance(value, int | float) else []


def dig(value: Any, path: Place) -> Any:
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def kind_of_value(value: Any) -> type:
    return float if isinstance(value, int | float) and not isinstance(value, bool) else type(value)


def tests_of(record: dict[str, Any]) -> list[str]:
    """Return all expressions of a key."""
    return [text for part in ("CHECK", "FIRST_CHECK", "ATLEAST_ONE_CHECK") for text in listed(record.get(part))]


def skeleton(task: Task) -> Log:
    """Return a log with the lines of every run."""
    head = [
        Event("submission_benchmark", task.benchmark),
        Event("submission_division", task.division),
        Event("submission_org", "example"),
        Event("submission_platform", "example"),
        Event("cache_clear", True),
    ]
    start, stop, run, end = (Event(key, kind=kind_of(key)) for key in FRAME)
    epochs = [
        Event(key, 0.5 if key == "eval_accuracy" else None, counts(key, number), kind_of(key), 60_000)
        for number in range(1, EVALUATIONS + 1)
        for key in (*INNER[:4], "eval_accuracy", *INNER[4:])
    ]
    if task.usage == "hpc":  # whose rules name eval_error for some benchmarks
        epochs = [event for event in epochs if event.key != "eval_accuracy"]
    return [*head, start, stop, run, *epochs, end]


def kind_of(key: str) -> str:
    return {"_start": "start", "_stop": "end"}.get(key[key.rfind("_") :], "event")


def counts(key: str, number: int) -> dict[str, Any]:
    if key.startswith("block"):
        return {"first_epoch_num": number, "epoch_count": 1}
    return {"epoch_num": number}


def holders(log: Log, key: str) -> list[list[tuple[int, str]]]:
    """Return for each value of a key its lines, each with the name of its metric; "" where that is all."""
    if key != AGGREGATED:
        return [[(line, "")] for line, event in enumerate(log) if event.key == key]
    found: dict[Any, list[tuple[int, str]]] = {}
    for line, event in enumerate(log):
        if metric := event.metadata.get("metric"):
            found.setdefault(event.metadata["epoch_num"], []).append((line, metric))
    return list(found.values())


def assign(log: Log, group: list[tuple[int, str]], value: Any) -> None:
    for line, metric in group:
        log[line].value = value[metric] if metric else value


# -- all logs of a benchmark -----------------------------------------------------------------------------------


def branches(committee: Committee, files: list[str]) -> list[tuple[str, list[Any]]]:
    """Return the keys whose value decides which other rule files count, with their values."""
    found = []
    for record in (record for file in files for record in committee.records(file)):
        if "enqueue_config" in record.get("POST", "") and not record["NAME"].startswith("submission_"):
            texts = listed(record["CHECK"])
            values = unique(value for text in texts for value in fixed_parts(text, {}))
            found.append((record["NAME"], values))
    return found


def make_all(committee: Committee, task: Task) -> Iterator[tuple[Maker, Made]]:
    """Yield the log of a benchmark, or one for each choice that decides about other rules."""
    maker = Maker(committee, task)
    made = maker.make()
    keys = branches(committee, made.files)
    if not keys:
        yield maker, made
        return
    for values in itertools.product(*(values for _, values in keys)):
        chosen = tuple(zip((name for name, _ in keys), values, strict=True))
        maker = Maker(committee, Task(task.usage, task.version, task.division, task.benchmark, chosen))
        yield maker, maker.make()
