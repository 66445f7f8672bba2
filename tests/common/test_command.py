"""Errors of the system are describe_error in words, and places for output are looked at before any work."""

import argparse
import os

import pytest

from common.command import CommandParser, as_called, describe_error, folder_path, run_command
from common.console import use_styles
from common.version import FOLDERS_VARIABLE


def test_errors_of_the_system_have_no_number(tmp_path, capsys):
    (tmp_path / "file").touch()
    (tmp_path / "broken").symlink_to(tmp_path / "none" / "there")
    for make, words in (
        (lambda: (tmp_path / "file").mkdir(exist_ok=True), "file: a file or a broken link has this name; remove it"),
        (lambda: (tmp_path / "broken" / "x").mkdir(parents=True, exist_ok=True), "broken: a file or a broken link"),
        (lambda: (tmp_path / "file" / "x").mkdir(parents=True), "file/x: this is a file, or below a file"),
        (tmp_path.read_bytes, f"{tmp_path.name}: this is a folder; expected a file"),
        ((tmp_path / "no").read_bytes, "no: No such file or directory"),
        (lambda: os.read(-1, 1), "Bad file descriptor"),
    ):
        assert run_command(make, (OSError,)) == 1
        error = capsys.readouterr().err
        assert words in error and ("Errno" not in error or "descriptor" in error)
    assert describe_error(ValueError("x is 3")) == "x is 3"


def test_an_error_that_quotes_a_file_sends_nothing_to_the_terminal(capsys):
    def fail():
        raise ValueError("unknown key \x1b[31mé\u202e\nand its hint")

    assert run_command(fail, (ValueError,)) == 1
    assert capsys.readouterr().err == "error: unknown key \\x1b[31mé\\u202e\nand its hint\n"


def test_a_file_or_a_broken_link_is_no_folder(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "broken").symlink_to(tmp_path / "none")
    (tmp_path / "link").symlink_to(tmp_path)
    assert folder_path(str(tmp_path / "link")) and folder_path(str(tmp_path / "new"))
    for name, problem in (("file", "is a file; expected a folder"), ("broken", "is a link to .*/none, .* not exist")):
        with pytest.raises(argparse.ArgumentTypeError, match=f"{name}: this {problem}"):
            folder_path(str(tmp_path / name))


def test_commands_have_the_option_without_which_they_find_no_package(monkeypatch):
    text = "next: python -m waves.train mini, python -m waves evaluate, then python -m compliance.check runs"
    monkeypatch.setenv(FOLDERS_VARIABLE, "")
    assert as_called(text) == text
    monkeypatch.setenv(FOLDERS_VARIABLE, r"/my \1")
    option = r"mlperf-hpc --benchmarks-from '/my \1'"
    assert as_called(text) == f"next: {option} train waves mini, {option} evaluate waves, then {option} check runs"


@pytest.mark.parametrize(
    ("variables", "terminal", "expected"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"TERM": "dumb"}, True, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, False, True),
    ],
)
def test_colours_are_for_terminals_unless_the_environment_decides(variables, terminal, expected, monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert use_styles(argparse.Namespace(isatty=lambda: terminal)) is expected


def test_the_label_of_an_error_has_its_colour_and_help_has_none(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with pytest.raises(SystemExit):
        CommandParser("python -m a.b").parse_args(["--x"])
    assert capsys.readouterr().err.startswith("\x1b[31merror:\x1b[0m there is no option --x")
    with pytest.raises(SystemExit):
        CommandParser("python -m a.b").parse_args(["--help"])
    assert "\x1b" not in capsys.readouterr().out
