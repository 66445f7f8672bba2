"""Waivers of the review committee: which result may fail the convergence test, and why.

A waiver file is YAML (or JSON) with a line for each waived result, named exactly:

    3.0/Example University/example_n64/strong/cosmoflow: new reference runs are agreed on
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from common.command import suggest_name
from common.errors import UsageError
from common.rounds import BY_NAME, HPC, find_usage
from common.tree import ANYWHERE, RefusedFileError, Tree
from compliance.benchmarks import benchmarks_of
from compliance.model.layout import STRONG, WEAK
from compliance.model.system import is_blank, is_placeholder

if TYPE_CHECKING:
    from compliance.model.result_set import ResultSet

FORM: Final = "round/organisation/system/scaling/benchmark"
EXAMPLE: Final = "3.0/Example/example_n64/strong/cosmoflow"


class Waiver(NamedTuple):
    """Why the convergence test of one result is waived, and where that is said: a file and line, "" if in no file."""

    reason: str
    path: str = ""
    line: int = 0


def waiver_name(results: ResultSet) -> str:
    """Return the name by which a waiver means this result; "" for logs outside of a submission."""
    if not results.system:
        return ""
    benchmark = results.benchmark or results.folder_benchmark
    return "/".join((results.round, results.organisation, results.system, results.scaling, benchmark))


def unused(waivers: Mapping[str, Waiver], sets: Iterable[ResultSet]) -> Iterator[tuple[Waiver, str]]:
    """Yield each waiver that changes no verdict of these results, and why."""
    needs_waiver: dict[str, bool] = {}  # whether a result of this name needs a waiver
    for results in sets:
        name = waiver_name(results)
        verdict = results.judged_convergence
        needs_waiver[name] = needs_waiver.get(name, False) or bool(verdict and not verdict.passed)
    for name, waiver in waivers.items():
        if name not in needs_waiver:
            yield waiver, f"this waiver names no result that was checked: {name}{suggest_name(name, needs_waiver)}"
        elif not needs_waiver[name]:
            yield waiver, f"this waiver is not needed: {name} has not failed the convergence test"


def check_waivers(waivers: Mapping[str, Waiver | str]) -> dict[str, Waiver]:
    """Return the waivers by name; raise UsageError if a name cannot be that of a result or a reason is missing."""
    by_name = {name: waiver if isinstance(waiver, Waiver) else Waiver(waiver) for name, waiver in waivers.items()}
    for name, waiver in by_name.items():
        if problem := _find_problem(name, waiver.reason):
            raise UsageError(f"waiver: {problem}")
    return by_name


def read_waivers(path: str) -> dict[str, Waiver]:
    """Return the waivers of a file by the name of their result; raise UsageError with file and line if it is broken."""
    import yaml  # only with --waivers

    text = read_text(path, "waivers", 1 << 20)
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UsageError(f"{path}, line {line}: the waivers are not valid YAML: {error.problem}") from None
    except yaml.YAMLError as error:  # a character that YAML does not allow
        raise UsageError(f"{path}: the waivers are not valid YAML: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise UsageError(f"{path}, line 1: the waivers are nested too deeply; expected lines {FORM}: reason") from None
    return dict(_parse_entries(root, path))


def _parse_entries(root: Any, path: str) -> Iterator[tuple[str, Waiver]]:
    """Yield name and waiver of each line of the file."""
    if root is None or root.id != "mapping" or not root.value:
        line = root.start_mark.line + 1 if root else 1
        raise UsageError(f"{path}, line {line}: this is not a list of waivers; expected lines {FORM}: reason")
    lines: dict[str, int] = {}
    for key, value in root.value:
        name, line = key.value if key.id == "scalar" else f"a {key.id}", key.start_mark.line + 1
        if problem := _find_problem(name, _scalar_text(value)):
            raise UsageError(f"{path}, line {line}: {problem}")
        if name in lines:
            raise UsageError(f"{path}, line {line}: {name} is waived twice; first in line {lines[name]}")
        lines[name] = line
        yield name, Waiver(_scalar_text(value).strip(), path, line)


def _scalar_text(node: Any) -> Any:
    """Return the text of a YAML node; None if it is something else, such as a number or a list."""
    return node.value if node.tag == "tag:yaml.org,2002:str" else None


def read_text(path: str, contents: str, most_bytes: int, tree: Tree = ANYWHERE) -> str:
    """Return a file's text; raise UsageError, which says that these contents cannot be read or are not UTF-8."""
    try:
        return tree.read(path, most_bytes).decode("utf-8-sig")
    except RefusedFileError as error:
        raise UsageError(f"{path}: cannot read the {contents}: it {error.reason}") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot read the {contents}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: the {contents} are not UTF-8: byte {error.start}") from None


def _find_problem(name: Any, reason: Any) -> str:
    """Return what is wrong with an entry, "" if nothing is."""
    if not isinstance(name, str) or len(parts := name.split("/")) != FORM.count("/") + 1 or not all(parts):
        return f"{str(name)[:80]!r} names no result; expected {FORM}, such as {EXAMPLE}"
    round_, _, _, scaling, benchmark = parts
    known = [("round", round_, tuple(BY_NAME)), ("scaling", scaling, (STRONG, WEAK))]
    if find_usage(round_) == HPC:
        known.append(("benchmark", benchmark, benchmarks_of(round_)))
    for part, word, names in known:
        if word not in names:
            return f"{name!r}: there is no {part} {word!r}{suggest_name(word, names)}; known are {', '.join(names)}"
    if not isinstance(reason, str) or is_blank(reason) or is_placeholder(reason):
        return f"{name}: expected a reason in words; write {name}: why"
    return ""
