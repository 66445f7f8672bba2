"""The facts of a benchmark of MLPerf Training, as the committee's files state them: nothing is written down here.

Target and settings are in the rule files, the number of runs in benchmark_meta.py, of which only a literal is read,
and the reference convergence points in rcp_checker/training_<version>/rcps_<benchmark>.json.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from common.reference import ANY, Dataset, ExampleRun, Reference, Setting, Target
from common.rounds import find_round
from common.tree import Tree
from common.values import is_number
from compliance.committee.rule_files import Condition, RuleFile, UnreadableError, read_rule_file

MOST_BYTES: Final = 64 << 10
"""Of benchmark_meta.py, which has 5 KB."""
MOST_RUNS: Final = 1000
RUNS: Final = "_ALL_RESULT_FILE_COUNTS"
"""The literal in benchmark_meta.py with the number of runs of a result, by suite and benchmark."""
OTHER_SCORING: Final = "unet3d"
"""Four of its 40 runs may fail, and four are dropped at each end (rcp_checker.py): scores here drop one."""
DIFFERING: Final = ("train_samples", "eval_samples")
"""Settings that differ between the runs of a result: how many samples a run trained with, in some benchmarks."""
HEADER: Final = (
    "cache_clear init_start init_stop run_start run_stop epoch_start epoch_stop block_start block_stop eval_start "
    "eval_stop eval_accuracy eval_error seed"
).split()
"""Keys in rule files that are no settings, beside those that begin with submission_."""


@dataclass(frozen=True, slots=True)
class CommitteeTarget(Target):
    """A target as a rule file states it. condition: what one of the results must meet. state: at the start."""

    condition: Condition | None = None
    state: Mapping[str, Any] = field(default_factory=dict)

    @property
    def range_text(self) -> str:
        """The accepted results, as the rule file writes them."""
        return f"{self.key}: {self.condition.text}" if self.condition else ""

    def met(self, value: Any) -> bool:
        """Tell whether an evaluation with this value reaches the target; False for one that the rule cannot judge."""
        return self._judge(value) is True

    @property
    def is_known(self) -> bool:
        """Whether a result alone tells if the target is met; some need the batch size, some have several results."""
        return self._judge(self.value) is not None

    def _judge(self, value: Any) -> bool | None:
        """Tell whether the target is met; None if the rule cannot judge the value."""
        if self.condition is None:
            return None
        try:
            return bool(self.condition.test(dict(self.state), {"value": value, "metadata": {}}, 0.0, lambda name: None))
        except Exception:  # whatever a rule of somebody else's raises
            return None


@lru_cache(maxsize=256)
def find_facts(folder: str, round_: str, benchmark: str | None, division: str = "closed") -> Reference | None:
    """Return the facts of a benchmark in a round and division; None if the committee's files do not state them.

    None, too, for the benchmark that is scored in another way: no score is better than a wrong one.
    """
    runs = _read_runs(folder).get(benchmark or "") if folder else None
    if benchmark is None or runs is None or benchmark == OTHER_SCORING:
        return None
    name = find_round(round_).folder
    try:
        common, own = (read_rule_file(folder, f"{name}/{file}.yaml") for file in ("common", f"{division}_{benchmark}"))
    except (UnreadableError, OSError):
        return None
    try:
        target = _read_target(own)
    except Exception:  # whatever a rule of somebody else's raises
        return None
    if target is None:
        return None
    keys = dict.fromkeys(key for file in (common, own) for key in file.keys)
    return Reference(
        name=benchmark,
        rounds=(round_,),
        target=target,
        runs=runs,
        dataset=Dataset({}, {}, own.name, counts_checked=False),
        settings=tuple(
            Setting(key, ANY, None, required=False, rounds=(round_,), identity=key not in DIFFERING)
            for key in keys
            if key not in HEADER and not key.startswith("submission_")
        ),
        epoch_unit="",
        points="",
        cite=own.name,
        example=ExampleRun(1, {}),
    )


def _read_target(rules: RuleFile) -> CommitteeTarget | None:
    """Return the target that one of the results must meet; None without one, or if it is of more than one number."""
    rule = next((rule for rule in rules.keys.values() if rule.once), None)
    if rule is None or rule.once is None:
        return None
    state: dict[str, Any] = {}
    if rules.begin:
        rules.begin.test(state, {}, 0.0, lambda name: None)
    for node in ast.walk(ast.parse(rule.once.text, mode="eval")):
        match node:
            case ast.Compare(
                ops=[ast.LtE() | ast.Lt() | ast.GtE() | ast.Gt() as op],
                comparators=[ast.Constant(value=limit) | ast.Subscript(slice=ast.Constant(value=limit))],
            ):
                number: Any = state.get(limit) if isinstance(limit, str) else limit
                if is_number(number):
                    target = CommitteeTarget(rule.key, number, isinstance(op, ast.LtE | ast.Lt), rule.once, state)
                    return target if target.is_known else None
    return None


@lru_cache(maxsize=64)
def list_benchmarks(folder: str, round_: str) -> tuple[str, ...]:
    """Return the names of the benchmarks that a round has: those with a rule file and a number of runs."""
    names = [
        file.stem.removeprefix("closed_") for file in sorted(Path(folder, find_round(round_).folder).glob("closed_*"))
    ]
    return tuple(name for name in names if name in _read_runs(folder)) if folder else ()


@lru_cache(maxsize=16)
def _read_runs(folder: str) -> dict[str, int]:
    """Return the number of runs of a result by benchmark; nothing where no literal says it."""
    package = Path(folder).parent
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(Tree.at(package).read(package / "benchmark_meta.py", MOST_BYTES))
        literals = [node.value for node in tree.body if isinstance(node, ast.Assign) and _names(node) == RUNS]
        counts = ast.literal_eval(literals[0])["training"]
        return {
            name: runs
            for name, runs in counts.items()
            if isinstance(name, str) and type(runs) is int and 0 < runs <= MOST_RUNS
        }
    except (OSError, ValueError, SyntaxError, LookupError, TypeError, AttributeError, RecursionError, MemoryError):
        return {}


def _names(node: ast.Assign) -> str:
    return node.targets[0].id if isinstance(node.targets[0], ast.Name) else ""
