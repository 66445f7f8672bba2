"""What the pages about training and submitting tell to type can be typed, and their names are those of the code."""

import argparse
import importlib
import os
import re
import shlex
import subprocess
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_type_hints

import pytest

from common.distributed.launch import LAUNCHERS
from common.staging.stage import MODES
from compliance.benchmarks import PACKAGES

ROOT = Path(__file__).parents[1]
CONFIGS = {name: importlib.import_module(f"{name}.train").Config for name in PACKAGES}
TRAINING = ROOT / "docs" / "guide" / "train.md"
SUBMISSION = ROOT / "docs" / "guide" / "submit.md"
PAGES = {
    **{ROOT / name / "README.md": [config] for name, config in CONFIGS.items()},
    **{page: [*CONFIGS.values()] for page in (TRAINING, SUBMISSION)},
}
SECTIONS = {
    config: {name: hint for name, hint in get_type_hints(config).items() if is_dataclass(hint)}
    for config in CONFIGS.values()
}


def blocks(page):
    return re.findall(r"^```\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def commands(page):
    """The words after -m of each command in the page's blocks of code but scripts, split as the shell would."""
    for block in blocks(page):
        if block.startswith("#!"):
            continue
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if "-m" in words:
                yield words[words.index("-m") + 1 :]


class ParsedError(Exception):
    """The arguments were accepted; nothing else is done."""


@pytest.mark.parametrize("words", [words for page in PAGES for words in commands(page)], ids=" ".join)
def test_commands_can_be_typed(words, monkeypatch, capsys):
    module, *arguments = words
    monkeypatch.chdir(ROOT)
    for name in re.findall(r"\$(\w+)", " ".join(arguments)):
        monkeypatch.setenv(name, "folder")
    folder = (ROOT / module.replace(".", "/")).is_dir()
    main = importlib.import_module(f"{module}.__main__" if folder else module).main
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


@pytest.mark.parametrize("resumed", [False, True], ids=["new", "resumed"])
@pytest.mark.parametrize("name", CONFIGS)
def test_job_scripts_start_and_resume_the_trainer(name, resumed, tmp_path, monkeypatch, capsys):
    """The script is run as printed, by a shell whose srun only tells its arguments."""
    (script,) = (block for block in blocks(ROOT / name / "README.md") if block.startswith("#!"))
    (tmp_path / "job.sh").write_text(script)
    (tmp_path / "srun").write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    (tmp_path / "srun").chmod(0o755)
    if resumed:
        (tmp_path / "before" / "checkpoints").mkdir(parents=True)
        (tmp_path / "before" / "checkpoints" / "epoch-0001-step-0000000.pt").touch()
    for variable, value in {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SCRATCH": "/s"}.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("TMPDIR", "/t")
    command = ["bash", "job.sh", *(["before"] if resumed else [])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    words = done.stdout.splitlines()
    module, *arguments = words[words.index("-m") + 1 :]
    assert module == f"{name}.train" and ("--resume" in arguments) == resumed
    assert importlib.import_module(module).main([*arguments, "--print-config"]) == 0, capsys.readouterr().err
    shown = capsys.readouterr().out
    assert "data_dir: /s/" in shown and f"output_dir: {'before' if resumed else f'runs/{name}-7'}" in shown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_keys_files_and_links_exist(page):
    text = page.read_text()
    sections = {name: hint for config in PAGES[page] for name, hint in SECTIONS[config].items()}
    known = {
        f"{name}.{field.name}"
        for config in PAGES[page]
        for name, hint in SECTIONS[config].items()
        for field in fields(hint)
    }
    named = set(re.findall(rf"`((?:{'|'.join(sections)})\.(?!py\b)\w+)", text))
    assert named and named <= known
    for link in re.findall(r"\]\((?!http)([^)#]+)", text):
        assert (page.parent / link).exists(), link


def rows(page, header):
    """The first cells of the page's table that begins with this header."""
    _, _, table = page.read_text().partition(f"\n| {header} |")
    return [line.split("|")[1].strip() for line in table.split("\n\n")[0].splitlines()[2:]]


def test_tables_are_complete():
    assert [re.findall("`(.+?)`", cell)[0] for cell in rows(TRAINING, "launcher")] == [one.name for one in LAUNCHERS]
    assert [cell.strip("`") for cell in rows(TRAINING, "mode")] == list(MODES)
    sections = {name for cell in rows(TRAINING, "section") for name in re.findall("`(.+?)`", cell)}
    # What only one benchmark has is in its README.
    assert sections == set.intersection(*(set(get_type_hints(config)) for config in CONFIGS.values()))
    for name in ("deepcam", "oc20"):
        formats = get_type_hints(SECTIONS[CONFIGS[name]]["data"])["format"].__args__
        assert [cell.strip("`") for cell in rows(ROOT / name / "README.md", "`data.format`")] == list(formats)


@pytest.mark.parametrize("name", CONFIGS)
def test_all_recipes_are_listed(name):
    listed = {Path(link).name for link in re.findall(r"\]\((presets/[^)]+)", (ROOT / name / "README.md").read_text())}
    assert listed == {path.name for path in (ROOT / name / "presets").glob("*.yaml")}
