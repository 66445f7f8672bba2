"""Settings that travel: where they are found, what a file may say, and what one that nobody named may not."""

import os
from pathlib import Path

import pytest

from common.errors import UsageError
from compliance.model.settings_file import MAX_BYTES, MAX_LINE, Settings, find_settings, read_settings
from compliance.model.waivers import Waiver

RESULT = "3.0/Example/example_n64/strong/cosmoflow"
ALL_KEYS = f"""\
round = "2.0"
profile = "official"
fail-on = "warning"
allow-mini = true
rules = ["own.py", "team.rules"]

[ignore]
QUA01 = "being discussed"

[waivers]
"{RESULT}" = "agreed on 1 May"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Enter a folder two below the top of its repository, and return it."""
    here = tmp_path / "repository/a/b"
    here.mkdir(parents=True)
    (tmp_path / "repository/.git").mkdir()
    monkeypatch.chdir(here)
    return here


def test_a_named_file_says_everything(folder):
    (folder / "ci.toml").write_text(ALL_KEYS)
    assert read_settings("ci.toml") == Settings(
        "ci.toml",
        named=True,
        round="2.0",
        profile="official",
        fail_on="warning",
        allow_mini=True,
        ignore={"QUA01": "being discussed"},
        waivers={RESULT: Waiver("agreed on 1 May", "ci.toml")},
        rules=("own.py", "team.rules"),
    )


def test_paths_in_a_file_begin_at_its_folder(folder):
    (folder.parent / "ci.toml").write_text('rules = ["rules/own.py"]\nwaivers = "waivers.yaml"\n')
    (folder.parent / "waivers.yaml").write_text(f"{RESULT}: why\n")
    settings = read_settings("../ci.toml")
    assert settings.rules == ("../rules/own.py",)
    assert settings.waivers == {RESULT: Waiver("why", "../waivers.yaml", 1)}


def test_a_found_file_makes_no_verdict_better(folder):
    (folder / "mlperf-hpc.toml").write_text(ALL_KEYS)
    assert find_settings() == Settings(
        "mlperf-hpc.toml",
        not_applied=("round", "profile", "allow-mini", "rules", "waivers"),
        fail_on="warning",
        ignore={"QUA01": "being discussed"},
    )


def test_a_found_file_may_be_strict(folder):
    (folder / "mlperf-hpc.toml").write_text('profile = "strict"\nfail-on = "note"\n')
    assert find_settings() == Settings("mlperf-hpc.toml", profile="strict", fail_on="note")


def test_a_found_file_reads_no_waivers(folder):
    os.mkfifo(folder / "strict")
    (folder / "mlperf-hpc.toml").write_text('waivers = "strict"\n')
    assert find_settings().not_applied == ("waivers",)


@pytest.mark.parametrize("name", ["mlperf-hpc.toml", "pyproject.toml"])
def test_the_nearest_file_up_to_the_repository_is_found(name, folder):
    table = "[tool.mlperf-hpc]\n" if name == "pyproject.toml" else ""
    (folder.parents[2] / name).write_text(f'{table}fail-on = "note"\n')
    assert find_settings() == Settings(), "above .git"
    (folder.parents[1] / name).write_text(f'{table}fail-on = "warning"\n')
    assert find_settings() == Settings(f"../../{name}", fail_on="warning")
    (folder / "pyproject.toml").write_text("[project]\nbroken because it is another tool's")
    assert find_settings().path == f"../../{name}"
    (folder / "mlperf-hpc.toml").write_text("")
    assert find_settings() == Settings("mlperf-hpc.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('rond = "3.0"', "no key 'rond' .did you mean 'round'.*known are round, profile, fail-on"),
        ("round = 3.0", "round = 3.0: expected one of '0.7', '1.0', '2.0', '3.0'"),
        ('round = "4.0"', "round = '4.0': expected one of"),
        ("round = []", r"round = \[\]: expected one of"),
        ('profile = "lenient"', "expected one of 'strict', 'official'"),
        ('fail-on = "nothing"', "expected one of 'error', 'warning', 'note'"),
        ('allow-mini = "yes"', "expected true or false"),
        ('ignore = ["QUA01"]', "expected a table of rules, each with the reason"),
        ('ignore.QUA01 = " "', "expected a table of rules, each with the reason"),
        ("ignore.QUA01 = true", "expected a table of rules, each with the reason"),
        ("waivers = 1", "expected the path of a file of waivers, or a table"),
        ('waivers."4.0/A/b/strong/oc20" = "why"', "there is no round '4.0'"),
        (f'waivers."{RESULT}" = ""', "expected a reason"),
        ('waivers = "none.yaml"', "ci.toml: none.yaml: cannot read the waivers: No such file"),
        ('rules = "own.py"', "expected a list of modules and Python files"),
        ('rules = [""]', "expected a list of modules and Python files"),
        ('profile = "strict"\nround = 3.0.0', r"not valid TOML: .*line 2"),
        ('round = "3.0"\nround = "3.0"\n', r"not valid TOML: .*line 2"),
        ("round = " + "[" * 900, "not valid TOML"),
        ("\n" + "a." * MAX_LINE + "a = 1", "line 2: it is longer than 1,000 characters"),
        ("#\n" * MAX_BYTES, "is larger than 256 KiB"),
        ("é".encode("latin-1"), "not UTF-8: byte 0"),
    ],
)
def test_a_broken_file_is_an_error_with_its_name(text, message, folder):
    (folder / "ci.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError, match=f"^(?=ci.toml).*{message}"):
        read_settings("ci.toml")


def _link_outside(path: Path) -> None:
    (path.parent.parent / "outside.toml").write_text("")
    path.symlink_to("../outside.toml")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (os.mkfifo, "is a pipe, not a file"),
        (os.mkdir, "is a folder, not a file"),
        (_link_outside, "is a link that leads out"),
        (lambda path: path.symlink_to("nothing"), "No such file"),
        (lambda path: path.write_text("roun = 1"), "did you mean 'round'"),
    ],
)
@pytest.mark.parametrize("levels", [0, 1])
def test_what_is_found_and_cannot_be_read_can_be_left_out(levels, make, message, folder):
    make((folder, folder.parent)[levels] / "mlperf-hpc.toml")
    with pytest.raises(UsageError, match=rf"^{'../' * levels}mlperf-hpc.toml: .*{message}.*--no-config"):
        find_settings()


def test_a_named_file_may_be_a_link_and_has_a_table_if_it_is_shared(folder):
    _link_outside(folder / "ci.toml")
    assert read_settings("ci.toml") == Settings("ci.toml", named=True)
    with pytest.raises(UsageError, match=r"none.toml: cannot read the settings: No such file"):
        read_settings("none.toml")
    for text, message in (
        ("[project]", "no table .tool.mlperf-hpc."),
        ("tool = 1 # mlperf-hpc", "no table .tool.mlperf-hpc."),
        ("tool.mlperf-hpc = 1", "expected a table"),
    ):
        (folder / "pyproject.toml").write_text(text)
        with pytest.raises(UsageError, match=message):
            read_settings("pyproject.toml")
