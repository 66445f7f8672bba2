"""Runs the official checkers of logs and packages (mlperf-logging, a development dependency) inside this process.

The tool reads its YAML rules again for every log; here they are read once, which saves most of its time. Rules,
parser and engine are untouched.
"""

from __future__ import annotations

import contextlib
import glob
import logging
import re
import warnings
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import yaml
from mlperf_logging.compliance_checker import mlp_compliance
from mlperf_logging.package_checker import package_checker
from mlperf_logging.rcp_checker import rcp_checker

LONGEST_QUEUE = 50
"""A benchmark named `common` makes the tool enqueue one file for ever; valid logs enqueue five at most."""


REAL_RCP_CHECKER = rcp_checker.RCP_Checker


class Outcome(NamedTuple):
    """What a checker says of a log: valid or not, and the keys that its errors are about.

    keys is None where the official tool ended with a traceback, or never would have ended.
    """

    valid: bool
    keys: frozenset[str] | None


class _Queue(list[str]):
    """The queue of rule files, with an end."""

    appended = 0
    most = LONGEST_QUEUE

    def append(self, config: str) -> None:
        self.appended += 1
        if self.appended > self.most:
            raise RuntimeError("the queue of rule files does not end")
        super().append(config)


@cache
def _parsed(text: str) -> Any:
    return yaml.load(text, Loader=yaml.BaseLoader)


@contextlib.contextmanager
def official_tool() -> Iterator[None]:
    """Make `check` fast and silent while this lasts."""
    module: Any = mlp_compliance
    real = module.yaml, module.enqueued_configs, logging.root.manager.disable
    module.yaml = SimpleNamespace(load=lambda file, Loader: _parsed(file.read()), BaseLoader=yaml.BaseLoader)
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        module.yaml, module.enqueued_configs, level = real
        logging.disable(level)


def check(path: str, round_: str) -> Outcome:
    """Return what the official tool says of the log."""
    module: Any = mlp_compliance
    queue = module.enqueued_configs = _Queue()
    checker = module.make_checker("hpc", f"{round_}.0", quiet=True, werror=False)
    try:
        valid, *_ = module.main(path, f"hpc_{round_}.0/common.yaml", checker)
    except Exception:  # a traceback of the tool, whatever it is: the log did not pass
        return Outcome(False, None)
    if queue.appended > LONGEST_QUEUE:
        return Outcome(False, None)
    return Outcome(bool(valid), frozenset(checker.overwritable) | _keys(checker.not_overwritable))


def check_package(root: Path, round_: str) -> bool:
    """Return whether the official tool accepts a package; a traceback does not. It writes into the package.

    The tool reads logs in the order in which the file system lists them, and its verdict may depend on it: it accepts a
    package if it does so in either order.
    """
    module: Any = rcp_checker
    real = module.glob, module.RCP_Checker
    module.RCP_Checker = _rcp_checker  # its tables are the same each time
    try:
        for backwards in (False, True):
            listed = partial(_listed, backwards=backwards)
            module.glob = SimpleNamespace(glob=listed)
            if not _accepts(root, f"{round_}.0"):
                return False
    finally:
        module.glob, module.RCP_Checker = real
    return True


@cache
def _rcp_checker(*arguments: Any) -> Any:
    return REAL_RCP_CHECKER(*arguments)


def _listed(pattern: str, recursive: bool, backwards: bool) -> list[str]:
    return sorted(glob.glob(pattern, recursive=recursive), reverse=backwards)


def _accepts(root: Path, ruleset: str) -> bool:
    """Return the verdict of `package_checker.check_training_package`, which only prints it."""
    module: Any = mlp_compliance
    module.enqueued_configs = _Queue()
    module.enqueued_configs.most = 10 * LONGEST_QUEUE
    options = {"quiet": False, "werror": False, "rcp_bypass": False, "rcp_bert_train_samples": False}
    try:
        with warnings.catch_warnings(action="ignore"):
            described = package_checker.check_systems(str(root), "hpc", ruleset)
            return described & package_checker.check_training_result_files(
                str(root), "hpc", ruleset, seed_checker_bypass=False, **options
            )
    except Exception:  # a traceback of the tool, whatever it is: the package did not pass
        return False


def _keys(messages: list[str]) -> frozenset[str]:
    """Return the keys that the messages without key speak of."""
    found: list[str] = []
    for message in messages:
        found += re.findall(r"^Failed checks for (\S+) :", message)
        if message.startswith("Required AT_LEAST_ONE occurrence of"):
            found += re.findall(r"'(\w+)'", message)
    return frozenset(found)


def known_keys(round_: str) -> frozenset[str]:
    """Return every key that some rule file of the round names."""
    folder = Path(mlp_compliance.__file__).with_name(f"hpc_{round_}.0")
    records = [record for file in folder.glob("*.yaml") for record in _parsed(file.read_text())]
    return frozenset(record["KEY"]["NAME"] for record in records if "KEY" in record)
