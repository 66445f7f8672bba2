"""Logs for the rules of every round that mlperf-logging has: valid ones, and for each rule one that breaks it.

    python bench/committee_logs.py OUT                             makes the logs of all rounds; about a minute
    python bench/committee_logs.py OUT --rounds training_5.1.0     of one round
    python bench/committee_logs.py OUT --compare                   has the official checker judge what is in OUT

Nothing is known here about a benchmark: which keys a log needs, and with which values, is found by trying values that
stand in the rule files, or follow from them, until the official checker is content. Where the value of a key decides
which other rules count, as the optimizer of ResNet or the schedule of DeepCAM, there is a valid log for each value.
A broken log is a valid one, changed so that one rule fails, and if possible no other. The lines are written by
mlperf-logging itself.

OUT/training_5.1.0/closed_bert/valid.txt        valid_<values>.txt where values decide about rules
OUT/training_5.1.0/closed_bert/broken_*.txt     named by rule file, key, part of the rule, and number of the expression;
                                                a rule that several benchmarks share is broken once for each division
OUT/contents.jsonl                              each log that was wanted: its rule, and why it is missing if it is
OUT/verdicts.jsonl                              with --compare: the official verdict on each log

Left out: training_0.6.0, whose lines mlperf-logging no longer writes; training_0.7.0_warn, for which the checker has no
parser. With --compare the exit status is 1 if the official checker refuses a log that should be valid.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from committee_breaking import Breaker
from committee_making import Made, Maker, Task, make_all
from committee_rules import Answer, Committee, Log, Rule, Writer

from common.command import CommandParser

ROOT: Final = Path(__file__).resolve().parents[1]
CONTENTS: Final = "contents.jsonl"
VERDICTS: Final = "verdicts.jsonl"
DIVISIONS: Final = ("closed", "open")
OWNERS: Final = 6
"""Benchmarks on whose logs a shared rule is tried."""
Row = dict[str, Any]
Source = tuple[Maker, Made]


# -- making ----------------------------------------------------------------------------------------------------


def find_benchmarks(committee: Committee, round_: str, division: str) -> list[str]:
    """Return the names that a round lists, and those of its files, which may be of a benchmark or of a part of one."""
    names: dict[str, None] = {}
    for rule in committee.rules(f"{round_}/{division}_common.yaml"):
        if rule.key == "submission_benchmark" and rule.part == "CHECK":
            names |= dict.fromkeys(rule.text.split("'")[3::2])
    files = sorted((committee.folder / round_).glob(f"{division}_*.yaml"))
    names |= dict.fromkeys(path.stem.removeprefix(f"{division}_") for path in files)
    return [name for name in names if name != "common"]


def make_round(committee: Committee, writer: Writer, out: Path, usage: str, version: str) -> Iterator[Row]:
    """Write the logs of a round; yield what became of each."""
    round_, sources, refused = f"{usage}_{version}", list[Source](), list[Row]()
    for earlier in (path for kind in ("valid", "broken_") for path in (out / round_).glob(f"*/{kind}*.txt")):
        earlier.unlink()
    for division in DIVISIONS:
        for benchmark in find_benchmarks(committee, round_, division):
            for maker, made in make_all(committee, Task(usage, version, division, benchmark)):
                row = {"usage": usage, "version": version, "folder": made.task.folder, "rule": "", "why": made.problem}
                if made.problem:
                    refused.append(row | {"log": None})
                    continue
                first = not any(other.task.folder == made.task.folder for _, other in sources)
                sources.append((maker, made))
                name = "valid.txt" if first else f"valid_{made.task.variant}.txt"
                yield row | {"log": write(writer, out, made.task, name, made.log)}
    reached = {Path(file).stem for _, made in sources for file in made.files}
    yield from (row for row in refused if row["folder"] not in reached)
    for division in DIVISIONS:
        yield from break_rules(committee, writer, out, [each for each in sources if each[1].task.division == division])


def break_rules(committee: Committee, writer: Writer, out: Path, sources: list[Source]) -> Iterator[Row]:
    """Write for each rule of these logs one that breaks it; yield what became of each."""
    for file in dict.fromkeys(file for _, made in sources for file in made.files):
        owners = [(maker, made) for maker, made in sources if file in made.files]
        breakers = [Breaker(maker, made) for maker, made in owners[:OWNERS]]
        for rule in committee.rules(file):
            task, found = owners[0][1].task, None
            for breaker in breakers:
                now = breaker.break_rule(rule)
                if now and (found is None or not now[1].valid):
                    task, found = breaker.made.task, now
                if found and not found[1].valid:
                    break
            path = write(writer, out, task, f"broken_{rule.name}.txt", found[0]) if found else None
            row = {"usage": task.usage, "version": task.version, "folder": task.folder, "log": path}
            yield row | {"rule": f"{file} {rule.key} {rule.part}: {rule.text.strip()}", "why": explain(rule, found)}


def explain(rule: Rule, found: tuple[Log, Answer] | None) -> str:
    """Return what is unusual about a broken log."""
    if found is None:
        return "no change was found that breaks it"
    if found[1].valid:
        return "broken, but a later rule file about the same key withdraws the error"
    if found[1].crash:
        return found[1].crash
    keys = {key for _, key, _ in found[1].failed if key not in ("", rule.key)}
    return f"fails, too: {', '.join(sorted(keys))}" if keys else ""


def write(writer: Writer, out: Path, task: Task, name: str, log: Log) -> str:
    path = out / task.round / task.folder / name
    writer.write(path, log)
    return path.relative_to(out).as_posix()


# -- judging ---------------------------------------------------------------------------------------------------


def judge_logs(committee: Committee, out: Path, rounds: Iterable[tuple[str, str]]) -> None:
    """Write the official verdict on each log that OUT has of these rounds."""
    logging.disable(logging.CRITICAL)
    with (out / VERDICTS).open("w", encoding="utf-8") as file:
        for usage, version in tqdm(list(rounds), "judging", disable=None, leave=False):
            for path in sorted((out / f"{usage}_{version}").glob("*/*.txt")):
                valid, crash = committee.judge(usage, version, path)
                log = path.relative_to(out).as_posix()
                row = {"usage": usage, "version": version, "log": log, "valid": valid, "crash": crash}
                file.write(json.dumps(row) + "\n")
    logging.disable(logging.NOTSET)


def read_rows(path: Path) -> list[Row]:
    if not path.exists():
        sys.exit(f"{path} is missing; make the logs first, then give --compare")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def read_verdicts(out: Path) -> list[Row]:
    """Return the official verdicts: usage, version, log as a path below OUT, valid, and crash: None or what it was."""
    return read_rows(Path(out) / VERDICTS)


def summarize(out: Path) -> Iterator[str]:
    """Yield a table with a line for each round, and what is missing."""
    verdicts = {row["log"]: row for row in read_verdicts(out)}
    judged = {(row["usage"], row["version"]) for row in verdicts.values()}
    wanted = [row for row in read_rows(out / CONTENTS) if (row["usage"], row["version"]) in judged]
    columns = (
        "benchmarks × divisions",
        "with a valid log",
        "valid logs",
        "accepted",
        "rules",
        "broken logs",
        "refused",
    )
    yield f"| round | {' | '.join(columns)} |"
    yield f"| --- |{' ---: |' * len(columns)}"
    totals = [0] * len(columns)
    for round_ in dict.fromkeys(f"{row['usage']}_{row['version']}" for row in wanted):
        rows = [row for row in wanted if f"{row['usage']}_{row['version']}" == round_]
        valid, rules = [row for row in rows if not row["rule"]], [row for row in rows if row["rule"]]
        made, broken = [row["log"] for row in valid if row["log"]], [row["log"] for row in rules if row["log"]]
        accepted = [log for log in made if verdicts[log]["valid"]]
        numbers = [
            len({row["folder"] for row in valid}),
            len({Path(log).parent for log in accepted}),
            len(made),
            len(accepted),
            len(rules),
            len(broken),
            sum(not verdicts[log]["valid"] for log in broken),
        ]
        totals = [total + number for total, number in zip(totals, numbers, strict=True)]
        yield f"| {round_} | {' | '.join(map(str, numbers))} |"
    yield f"| all | {' | '.join(f'{total:,}' for total in totals)} |"
    yield from list_missing(wanted, verdicts)


def list_missing(wanted: list[Row], verdicts: dict[str, Row]) -> Iterator[str]:
    """Yield which valid logs are missing or refused, and which rules are not broken or not enforced, each kind once."""
    yield "\nbenchmarks without a valid log:"
    for row in wanted:
        if not row["rule"] and not (row["log"] and verdicts[row["log"]]["valid"]):
            why = row["why"] or "refused when read from the file"
            yield f"  {row['usage']}_{row['version']} {row['folder']}: {why}"
    kinds = {"rules for which no broken log was found": False, "broken logs that are accepted": True}
    for title, exists in kinds.items():
        yield f"\n{title}:"
        found: dict[str, list[str]] = {}
        for row in wanted:
            if row["rule"] and bool(row["log"]) is exists and not (exists and not verdicts[row["log"]]["valid"]):
                file, _, rule = row["rule"].partition(" ")
                found.setdefault(f"{Path(file).name} {rule}", []).append(f"{row['usage']}_{row['version']}")
        for rule, rounds in sorted(found.items()):
            yield f"  {rule} ({len(rounds)}: {', '.join(dict.fromkeys(rounds))})"


# -- the command -----------------------------------------------------------------------------------------------


def find_package(given: Path | None) -> Path:
    """Return the folder of mlperf_logging; exit if there is none."""
    spec = None if given else importlib.util.find_spec("mlperf_logging")
    folder = given or (Path(spec.origin).parent if spec and spec.origin else None)
    if folder is None:
        sys.exit("mlperf_logging is not installed; pip install mlperf-logging==4.1.68, or give its folder with --rules")
    if not (folder / "compliance_checker").is_dir():
        sys.exit(f"{folder} has no folder compliance_checker; --rules is the folder of the package mlperf_logging")
    return folder.resolve()


def parse_arguments() -> argparse.Namespace:
    statuses = {1: "a log that should be valid is refused, or something is missing"}
    parser = CommandParser("bench/committee_logs.py", statuses, description=__doc__)
    parser.add_argument("out", metavar="OUT", type=Path, help="folder for the logs; those that are there are replaced")
    parser.add_argument("--rules", metavar="RULES", type=Path, help="folder of mlperf_logging (default: the installed)")
    parser.add_argument("--rounds", metavar="R,R", help="such as training_5.1.0,hpc_3.0.0 (default: all)")
    parser.add_argument("--compare", action="store_true", help="judge the logs in OUT, and print a table")
    given: argparse.Namespace = parser.parse_args()
    return given


def main() -> int:
    """Make the logs, or have them judged."""
    given = parse_arguments()
    committee = Committee(find_package(given.rules))
    rounds = {f"{usage}_{version}": (usage, version) for usage, version in committee.rounds()}
    chosen = given.rounds.split(",") if given.rounds else list(rounds)
    if unknown := [name for name in chosen if name not in rounds]:
        sys.exit(f"there is no round {unknown[0]}; there are {', '.join(rounds)}")
    if given.compare:
        read_rows(given.out / CONTENTS)  # or exit
        judge_logs(committee, given.out, [rounds[name] for name in chosen])
        print("\n".join(summarize(given.out)))
        refused = {row["log"] for row in read_verdicts(given.out) if not row["valid"]}
        return int(any(row["log"] in refused for row in read_rows(given.out / CONTENTS) if not row["rule"]))
    given.out.mkdir(parents=True, exist_ok=True)
    writer = Writer(ROOT)
    with (given.out / CONTENTS).open("w", encoding="utf-8") as file:
        for name in tqdm(chosen, "rounds", disable=None):
            for row in make_round(committee, writer, given.out, *rounds[name]):
                file.write(json.dumps(row) + "\n")
    print(f"{given.out / CONTENTS} says what was made; --compare has it judged")
    return 0


if __name__ == "__main__":
    sys.exit(main())
