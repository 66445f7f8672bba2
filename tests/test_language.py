"""The field's words, and English as engineers write it: a list of words and phrases that stay out of the project."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
READ_BY_PEOPLE = (".py", ".md", ".yaml", ".yml", ".cfg", ".toml", ".css", ".js", ".def", "Makefile", "Dockerfile")

# What to write instead. Names count as well: an underscore ends a word here.
INSTEAD = {
    "mend(s|ed|ing|able)?": "fix",
    "crews?": "workers",
    "ledgers?": "journal",
    "anew": "again",
    "sift(s|ed|ing)?": "filter",
    "honest(ly)?": "valid",
    "strange(r|ly)?": "unexpected",
    "begun": "started",
    "intake": "input logs",
    "lineage": "run facts, or provenance",
    "(?<!hyperparameter )borrowings?": "reused hyperparameters ('hyperparameter borrowing' is the rules' term)",
    "(?<!there )(is|are|was|were) no(?! longer| more| less| fewer)": "is not a",
    "holds? no": "has no, or contains no",
    "so many": "this many, or N",
    "one'?s own": "your own",
    "who works": "workers",
    "(is|are) there already": "already exists",
    "as (they|it) should be": "what was expected, by name",
    "at most [0-9:]+ left": "ETA",
    "(?<=[.;|] )who (always|sees|reads|looks|waits|trains|asks|has|wants)": "a noun: 'a model that …', 'users who …'",
    "what comes out": "output",
    "what a person must do": "manual steps",
    "told without a traceback": "reported without a traceback",
}
EXEMPT = {
    "tests/test_language.py": "lists the words",
    "cosmoflow/simulation/universe.py": "its hash is part of the generated data",
    "cosmoflow/simulation/drift.py": "its hash is part of the generated data",
    "deepcam/simulation/detection.py": "its hash is part of the generated data",
    "deepcam/simulation/planet.py": "its hash is part of the generated data",
    "deepcam/simulation/snapshot_generator.py": "its hash is part of the generated data",
    "deepcam/simulation/weather.py": "its hash is part of the generated data",
    "oc20/simulation/surface.py": "its hash is part of the generated data",
}
DIALECT = {re.compile(rf"(?<![a-z])(?:{words})(?![a-z])", re.IGNORECASE): better for words, better in INSTEAD.items()}


def findings_in(text: str) -> list[tuple[int, str, str]]:
    """Return line number, words and what to write instead for each phrase of the list."""
    return [
        (number, match[0], better)
        for number, line in enumerate(text.splitlines(), 1)
        for pattern, better in DIALECT.items()
        for match in pattern.finditer(line)
    ]


def read_by_people() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.splitlines() if name.endswith(READ_BY_PEOPLE) and name not in EXEMPT]


def test_no_phrase_of_the_list_is_in_a_file_that_people_read():
    names = read_by_people()
    assert len(names) > 300
    wrong = [
        f"{name}:{number}: {words!r}: write {better}"
        for name in names
        for number, words, better in findings_in((ROOT / name).read_text(encoding="utf-8"))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", EXEMPT)
def test_an_exempt_file_exists(name):
    assert (ROOT / name).is_file()


@pytest.mark.parametrize(
    "text",
    [
        "class Crew:",
        "crew_of(args)",
        "Mend: set it",
        "x is no number",
        "the first so many",
        "0.5 each. Who always says",
    ],
)
def test_the_list_finds(text):
    assert findings_in(text)


@pytest.mark.parametrize(
    "text",
    ["There is no file", "it is no longer read", "recommended", "those who train it", "hyperparameter borrowing"],
)
def test_the_list_leaves_plain_english_alone(text):
    assert not findings_in(text)
