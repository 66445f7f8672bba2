"""Write the generated pages of `docs/`: `python bench/reference_pages.py`; with `--check`, only compare them.

config.md, quantities.md, rules.md and settings.md are generated as a whole, profiles.md between its two marks.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # before this folder, which has a cosmoflow.py and more of such names

from config_page import format_page  # noqa: E402

from common.reference import ANY, NOT_EMPTY, OPEN_SETTINGS, Reference, Setting  # noqa: E402
from common.settings.keys import DeclarationError, find_config_class  # noqa: E402
from compliance.benchmarks import MINIS, REFERENCES  # noqa: E402
from compliance.explain import bad_findings, divisions_text, rounds_text, sentence  # noqa: E402
from compliance.model.judging import PROFILES  # noqa: E402
from compliance.rules.catalog import all_rules  # noqa: E402
from compliance.rules.rule import FAMILIES, RETIRED, Rule, prefix, show  # noqa: E402
from submission.study.records import QUANTITIES  # noqa: E402

DOCS = ROOT / "docs" / "reference"
BEGIN, END = "<!-- generated: begin -->", "<!-- generated: end -->"
NOTICE = "<!-- Written by `python bench/reference_pages.py` (make docs); changes here are lost. -->"
NEW_PROFILES = f"""# Profiles

`--profile strict` (the default) judges by the written rules. `--profile official` gives the verdict of
mlperf-logging 4.1.68, whatever the rules say; where that tool crashes, the log counts as invalid.

## Every difference

{BEGIN}
{END}

## Published logs that strict rejects
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or compare the pages; return 1 if `--check` finds one out of date, 2 if one cannot be made."""
    parser = argparse.ArgumentParser(prog="python bench/reference_pages.py", description="Write the generated pages.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page is out of date")
    parser.add_argument("--folder", type=Path, default=DOCS, help="where the pages are (default: docs/)")
    given = parser.parse_args(arguments)
    try:
        outdated = {path: text for path, text in pages(given.folder).items() if _read_page(path) != text}
    except (ValueError, DeclarationError) as error:
        print(error, file=sys.stderr)
        return 2
    if given.check:
        for path in outdated:
            print(f"{path} is out of date; run `python bench/reference_pages.py`", file=sys.stderr)
        return 1 if outdated else 0
    for path, text in outdated.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


def pages(folder: Path) -> dict[Path, str]:
    """Return the expected contents of each page.

    Raises ValueError if profiles.md has lost its marks, DeclarationError for a key that does not say what closed asks.
    """
    profiles = folder / "profiles.md"
    trained = (reference for reference in REFERENCES.values() if reference.trained_by)
    return {
        profiles: profiles_page(_read_page(profiles) or NEW_PROFILES, str(profiles)),
        folder / "config.md": format_page(map(find_config_class, trained)),
        folder / "quantities.md": quantities_page(),
        folder / "rules.md": rules_page(),
        folder / "settings.md": settings_page(),
    }


def _read_page(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def quantities_page() -> str:
    """Return the table of what a study can measure."""
    about = "What curves of [studies](../guide/study.md) can have as x, y and by, beside the axes.\n"
    rows = [(span(name), quantity.unit, prose(quantity.meaning)) for name, quantity in QUANTITIES.items()]
    return "\n".join([f"# Quantities of studies\n\n{NOTICE}\n", about, table(("name", "unit", "meaning"), rows)])


# -- rules.md ----------------------------------------------------------------------------------------------


@cache  # it runs every example
def rules_page() -> str:
    """Return the reference of all rules of the suite, by family."""
    parts = [
        f"# Rules\n\n{NOTICE}\n",
        f"{len(all_rules())} rules. `mlperf-hpc check --explain ID` shows one of them. The messages "
        "come from running each rule on its own examples.\n",
    ]
    for family, about in FAMILIES.items():
        parts.append(f"## {family}\n\n{prose(about)}.\n")
        parts += [_rule_section(rule) for id_, rule in sorted(all_rules().items()) if prefix(id_) == family]
    retired = ", ".join(sorted(RETIRED))
    parts.append(f"## Ids that no rule has\n\n{retired}: retired or never assigned; no rule will take them.\n")
    return "\n".join(parts)


def _rule_section(rule: type[Rule]) -> str:
    where = f"rounds: {rounds_text(rule.rounds)}; divisions: {divisions_text(rule)}"
    lines = [
        f"### {rule.id}\n",
        f"{prose(rule.title())}\n",
        f"- {rule.severity}; profiles: {' and '.join(rule.profiles)}; {where}",
        f"- source: {prose(rule.cite)}",
        f"- why: {prose(rule.why)}",
        f"- fix: {prose(rule.fix)}",
    ]
    if rule.differs:
        lines.append(f"- profiles: {prose(rule.differs)}")
    findings = bad_findings(rule)
    if findings:
        lines.append("- example messages:")
        lines += [f"  - {span(sentence(finding))}" for finding in findings]
    return "\n".join(lines) + "\n"


# -- profiles.md -------------------------------------------------------------------------------------------


def profiles_page(present: str, name: str) -> str:
    """Return the page with its generated part renewed; the text outside the marks stays.

    Raises ValueError if a mark is missing or repeated, or the two are in the wrong order.
    """
    before, begin, rest = present.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in before + after:
        raise ValueError(f"{name}: expected once `{BEGIN}` and after it once `{END}`; put them back")
    return f"{before}{BEGIN}\n{NOTICE}\n\n{_differences_page()}\n{END}{after}"


def _differences_page() -> str:
    rows = []
    for rule in all_rules().values():
        if rule.differs or rule.profiles != PROFILES:
            judged = [rule.severity if profile in rule.profiles else "not checked" for profile in PROFILES]
            rows.append((rule.id, prose(rule.title()), *judged, prose(rule.differs)))
    same = len(all_rules()) - len(rows)
    for row_, where in differences().items():
        id_ = "SET05" if row_.key.endswith("_samples") else "SET04"
        title = f"{span(row_.key)} ({prose(', '.join(where))})"
        rows.append((id_, title, prose(row_.allowed), prose(row_.official), prose(row_.examples)))
    heading = ("rule", "rule, or setting", "strict", "official", "how they differ")
    rows.sort(key=lambda cells: cells[0])
    return f"{table(heading, rows)}\nThe other {same} rules are the same in both profiles.\n"


# -- settings.md -------------------------------------------------------------------------------------------


HEADING = ("setting", "rounds", "logged", "allowed (profile strict)", "what the official tool tests")


def settings_page() -> str:
    """Return the tables of settings: of each benchmark's closed division and mini problem, and of the open division."""
    parts = [
        f"# Settings\n\n{NOTICE}\n",
        "The settings that a log must state, and their allowed values; rules SET03, SET04 and SET05. Each "
        "setting is logged once. In the profile strict, SET08 and RUN03 check `seed`. The settings of the trainers are "
        "in [config.md](config.md).\n",
    ]
    for name, reference in REFERENCES.items():
        parts += [_about_text(f"{name}, closed division", reference), table(HEADING, _setting_rows(reference))]
    for mini in (mini for minis in MINIS.values() for mini in minis):
        # The official tool, and so the last column, does not know the mini problems.
        rows = [cells[:-1] for cells in _setting_rows(mini)]
        parts += [_about_text(f"{mini.name}, mini problem ({mini.variant})", mini), table(HEADING[:-1], rows)]
    parts.append("## Open division\n\nHyperparameters and data are free.\n")
    rows = [(span(r.key), "all", prose(r.needed), prose(r.allowed), prose(r.official)) for r in map(row, OPEN_SETTINGS)]
    parts.append(table(HEADING, rows))
    return "\n".join(parts)


def _about_text(title: str, reference: Reference) -> str:
    facts = f"Rounds: {rounds_text(reference.rounds)}. Target: {span(reference.target.range_text)}."
    return f"## {title}\n\n{facts} {reference.runs} runs. Source: {reference.cite}\n"


def _setting_rows(reference: Reference) -> list[tuple[str, ...]]:
    return [
        (
            span(row_.key),
            rounds_text(tuple(rounds)),
            prose(row_.needed),
            prose(row_.allowed + (f" ({row_.why})" if row_.why else "")),
            prose(row_.official),
        )
        for row_, rounds in settings_by_row(reference).items()
    ]


# -- the settings of all benchmarks as table rows: what is allowed, and what the official tool tests instead -------

PROBES: tuple[Any, ...] = (
    *(1, 1.0, 0, 0.5, 2, 1.5, -1, True, False, float("nan"), float("inf")),
    *("1", "text", "", None, [], [1], [0.5], [-1], ["1"], [0.5, 2], {}),
)
"""Values of all kinds; those that only one profile accepts illustrate a difference."""
MOST_EXAMPLES = 4
UNNOTICED = "none of the values tried"


class SettingRow(NamedTuple):
    """What a table says about a setting, except for the benchmarks and rounds where it applies."""

    key: str
    allowed: str
    official: str
    needed: str
    why: str
    examples: str


def row(setting: Setting) -> SettingRow:
    """Return a setting in words."""
    if setting.when:
        key, check = setting.when
        needed = f"where {key} is {check.text}"
    else:
        needed = "always" if setting.required else "may be missing"
    official = setting.official.text if setting.official else "does not know the key"
    return SettingRow(setting.key, setting.allowed.text, official, needed, setting.why, judged_apart(setting))


def judged_apart(setting: Setting) -> str:
    """Return in words a few values that only one of the profiles accepts; "" if both are the same."""
    official = setting.official
    if official is None or official in (ANY, NOT_EMPTY):
        return "the official tool does not check the value"
    parts = []
    for name, first, second in (("official", official, setting.allowed), ("strict", setting.allowed, official)):
        values = [show(value) for value in PROBES if first.allows(value) and not second.allows(value)]
        if values:
            parts.append(f"only {name} accepts {', '.join(values[:MOST_EXAMPLES])}")
    return "; ".join(parts) or ("" if official == setting.allowed else UNNOTICED)


def settings_by_row(reference: Reference) -> dict[SettingRow, list[str]]:
    """Return the settings of a closed division or mini problem, each with the rounds where it applies."""
    rows: dict[SettingRow, list[str]] = {}
    for round_ in reference.rounds:
        for setting in reference.settings_of(round_, "closed"):
            rows.setdefault(row(setting), []).append(round_)
    return rows


def differences() -> dict[SettingRow, list[str]]:
    """Return the settings that the profiles judge differently, each with the benchmarks concerned."""
    by_row: dict[SettingRow, dict[str, tuple[str, ...]]] = {}
    for name, reference in REFERENCES.items():
        for row_, rounds in settings_by_row(reference).items():
            if row_.allowed != row_.official or row_.examples not in ("", UNNOTICED):
                # Whether the key is required is the same in both profiles: not a row of its own.
                by_row.setdefault(row_._replace(needed="", why=""), {})[name] = tuple(rounds)
    where = {row_: _describe_benchmarks(rounds) for row_, rounds in by_row.items()}
    for setting in OPEN_SETTINGS:
        where.setdefault(row(setting)._replace(needed="", why=""), ["all in the open division"])
    return where


def _describe_benchmarks(rounds_of: dict[str, tuple[str, ...]]) -> list[str]:
    """Return benchmarks in words, with the rounds where it does not apply to all of them."""
    if all(rounds_of.get(name) == reference.rounds for name, reference in REFERENCES.items()):
        return ["all"]
    return [
        name if rounds == REFERENCES[name].rounds else f"{name} {rounds_text(rounds)}"
        for name, rounds in rounds_of.items()
    ]


# -- Markdown ----------------------------------------------------------------------------------------------


def prose(text: str) -> str:
    """Return a text of the suite as Markdown; text in backticks is already code, and `<` begins a tag only in `<a`."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"(<(?=[A-Za-z/!?])|[*\[\]\\])", r"\\\1", part) for part in parts
    )


def span(text: str) -> str:
    """Return a text as code, even if it contains backticks."""
    if "`" not in text:
        return f"`{text}`"
    fence = "`" * (max(map(len, re.findall("`+", text))) + 1)
    return f"{fence} {text} {fence}"


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a bar in a cell does not end it."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


if __name__ == "__main__":
    raise SystemExit(main())
