"""What the pages about training tell to type can be typed, and the names in them are those of the code."""

import argparse
import importlib
import re
import shlex
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_type_hints

import pytest

from common.launch import LAUNCHERS
from common.staging import MODES
from cosmoflow.train import Config

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "cosmoflow" / "README.md", ROOT / "docs" / "training.md"]
TRAINING = PAGES[1].read_text()
SECTIONS = {name: hint for name, hint in get_type_hints(Config).items() if is_dataclass(hint)}
KEYS = {f"{name}.{field.name}" for name, section in SECTIONS.items() for field in fields(section)}


def commands(page):
    """The words after -m of each command in the page's blocks of code, split as the shell would."""
    for block in re.findall(r"^```\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if "-m" in words:
                yield words[words.index("-m") + 1 :]


class ParsedError(Exception):
    """The arguments were accepted; nothing else is done."""


@pytest.mark.parametrize("words", [words for page in PAGES for words in commands(page)], ids=" ".join)
def test_commands_can_be_typed(words, monkeypatch, capsys):
    module, *arguments = [word for word in words if word != "$resume"]
    monkeypatch.chdir(ROOT)
    for name in re.findall(r"\$(\w+)", " ".join(arguments)):
        monkeypatch.setenv(name, "folder")
    main = importlib.import_module(module).main
    if module.endswith(".train"):
        # Loads the configuration with all its overrides.
        assert main([*arguments, "--print-config"]) == 0, capsys.readouterr().err
        return

    def parse(parser, *given):
        parse_args(parser, *given)
        raise ParsedError

    parse_args = argparse.ArgumentParser.parse_args
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse)
    with pytest.raises(ParsedError):
        main(arguments)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_keys_files_and_links_exist(page):
    text = page.read_text()
    named = set(re.findall(rf"`((?:{'|'.join(SECTIONS)})\.(?!py\b)\w+)", text))
    assert named and named <= KEYS
    for link in re.findall(r"\]\((?!http)([^)#]+)", text):
        assert (page.parent / link).exists(), link


def rows(text, header):
    """The first cells of the table that begins with this header."""
    _, _, table = text.partition(f"\n| {header} |")
    return [line.split("|")[1].strip() for line in table.split("\n\n")[0].splitlines()[2:]]


def test_tables_are_complete():
    assert [re.findall("`(.+?)`", cell)[0] for cell in rows(TRAINING, "launcher")] == [one.name for one in LAUNCHERS]
    assert [cell.strip("`") for cell in rows(TRAINING, "mode")] == list(MODES)
    sections = {name for cell in rows(TRAINING, "section") for name in re.findall("`(.+?)`", cell)}
    # `variant` is CosmoFlow's own.
    assert sections == set(get_type_hints(Config)) - {"variant"}
    presets = {Path(name).name for name in re.findall(r"\]\((presets/[^)]+)", PAGES[0].read_text())}
    assert presets == {path.name for path in (ROOT / "cosmoflow" / "presets").glob("*.yaml")}
