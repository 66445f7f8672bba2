"""What README and docs tell to type can be typed, does what they say, and names what the code has."""

import argparse
import ast
import contextlib
import importlib
import io
import os
import re
import shlex
import shutil
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import yaml

from bench import site_pages
from common.benchmarks import PACKAGES
from common.command import CommandParser
from common.installed import find_page
from common.ranks.launch import LAUNCHERS
from common.settings.machine import Mode
from common.version import PROGRAM
from compliance.check import main as check
from compliance.demo import STORIES
from compliance.rules.catalog import all_rules
from submission.cli import resolve_command
from tests.module_graph import Tree
from tests.problems import ROOT, run_process

GENERATED = {"rules.md", "profiles.md", "settings.md", "config.md"}
PAGES = [
    page
    for pattern in ("*.md", "*/README.md", "docs/**/*.md")
    for page in sorted(ROOT.glob(pattern))
    if page.name not in GENERATED and not page.name.startswith(".") and page.name != "CHANGELOG.md"
]


def blocks(page):
    """Return the blocks of code without a language, as text."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return [block for language, block in found if not language]


NEW = "ocean_eddies"
"""The benchmark that docs/guide/new-benchmark.md makes; tests/test_installed.py makes and trains one."""


def commands(page):
    """Yield the words of each command on a page but scripts, from its Python module on, split as the shell would."""
    for block in blocks(page):
        if block.startswith("#!"):
            continue
        lines = [line for line in block.replace("\\\n", " ").splitlines() if NEW not in line]
        for line in [line.removeprefix("$ ") for line in lines if line.startswith("$ ")] or lines:
            words = shlex.split(line.partition(" > ")[0], comments=True) if re.search("-m |mlperf-hpc ", line) else []
            if "-m" in words:
                yield words[words.index("-m") + 1 :]
            elif PROGRAM in words and not {"help", "version", "--help"} & set(words):
                command, benchmark, arguments = resolve_command(words[words.index(PROGRAM) + 1 :])
                yield [*command.name_module(benchmark).split(), *arguments]


COMMANDS = sorted(
    {tuple(words) for page in PAGES for words in commands(page) if words[0] not in ("pip", "pytest", "venv")}
)


class ParsedError(Exception):
    """The arguments were accepted; nothing else is done."""


def main_of(module):
    is_folder = (ROOT / module.replace(".", "/")).is_dir()
    return importlib.import_module(f"{module}.__main__" if is_folder else module).main


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_commands_can_be_typed(words, monkeypatch, tmp_path, capsys):
    module, *arguments = words
    monkeypatch.chdir(tmp_path)
    for name in re.findall(r"\$(\w+)", " ".join(arguments)):
        monkeypatch.setenv(name, "folder")
    if module.endswith(".train") and "--help" not in arguments:
        # Loads the configuration with all its overrides.
        assert main_of(module)([*arguments, "--print-config"]) == 0, capsys.readouterr().err
        return

    def parsing(parse):
        def parse_only(parser, *given):
            parse(parser, *given)
            raise ParsedError

        return parse_only

    for cls, name in (
        (CommandParser, "parse_args"),
        (argparse.ArgumentParser, "parse_args"),
        (argparse.ArgumentParser, "parse_intermixed_args"),
    ):
        monkeypatch.setattr(cls, name, parsing(getattr(cls, name)))
    with pytest.raises((ParsedError, SystemExit)) as ended:
        main_of(module)(arguments)
    assert ended.type is ParsedError or ended.value.code == 0  # such as --help


@pytest.mark.parametrize("resumed", [False, True], ids=["new", "resumed"])
@pytest.mark.parametrize("name", PACKAGES)
def test_job_scripts_start_and_resume_the_trainer(name, resumed, tmp_path, monkeypatch, capsys):
    """The script is run as printed, by a shell whose srun only prints its arguments."""
    (script,) = (block for block in blocks(ROOT / name / "README.md") if block.startswith("#!"))
    (tmp_path / "job.sh").write_text(script)
    (tmp_path / "srun").write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    (tmp_path / "srun").chmod(0o755)
    if resumed:
        (tmp_path / "before" / "checkpoints").mkdir(parents=True)
        (tmp_path / "before" / "checkpoints" / "epoch-0001-step-0000000.pt").touch()
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SCRATCH": "/s", "TMPDIR": "/t"}
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    words = run_process("bash", "job.sh", *["before"] * resumed, cwd=tmp_path).stdout.splitlines()
    module, *arguments = words[words.index("-m") + 1 :]
    assert module == f"{name}.train" and ("--resume" in arguments) == resumed
    assert main_of(module)([*arguments, "--print-config"]) == 0, capsys.readouterr().err
    shown = capsys.readouterr().out
    assert "data_dir: /s/" in shown and f"output_dir: {'before' if resumed else f'runs/{name}-7'}" in shown


def anchors(page):
    """Return the anchors of a page's headings, as a forge makes them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page):
    for link in re.findall(r"\]\((?!http)([^)]+)\)", page.read_text()):
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not heading or heading in anchors(target), link


def test_every_page_is_in_the_navigation_of_the_site():
    def paths(item):
        values = item if isinstance(item, list) else item.values() if isinstance(item, dict) else ()
        return {item} if isinstance(item, str) else {path for value in values for path in paths(value)}

    pages = {site_pages.locate(page) for page in [*site_pages.DOCS.rglob("*.md"), *site_pages.OUTSIDE]}
    assert paths(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]) == pages


def test_pages_that_the_code_names_exist():
    """In messages, --help, citations and docstrings; `mlperf-hpc help` shows them."""
    wrong, names = [], set()
    for module in Tree(ROOT).modules.values():
        constants = (node.value for node in ast.walk(module.syntax) if isinstance(node, ast.Constant))
        for name in (name for text in constants if isinstance(text, str) for name in NAMED.findall(text)):
            page, anchor = find_page(name) or ROOT / name, name.partition("#")[2]
            names.add(name)
            if not page.is_file() or (anchor and anchor not in anchors(page)):
                wrong.append(f"{module.path}: {name}")
    assert wrong == [] and len(names) > 15
    assert {name.lower() for name in all_rules()} <= anchors(ROOT / "docs/reference/rules.md")


NAMED = re.compile(
    r"(?:docs/(?:guide|reference|performance)/[\w/.-]+|(?:cosmoflow|deepcam|oc20)/README)\.(?:md|json)(?:#[\w-]+)?"
)


def folder_of(path):
    """Return the folder of a module as architecture.md names it: at most two levels, one name for all benchmarks."""
    top, *below = path.parts[:-1]
    return "/".join(["<benchmark>" if top in PACKAGES else top, *below[:1]]) + "/"


def importers():
    """Return the folders that import something from each folder: of its own package by name, else whole packages."""
    tree = Tree(ROOT)
    found = {folder_of(module.path): set() for module in tree.modules.values()}
    for module in tree.modules.values():
        for target in tree.targets(module):
            source, goal = folder_of(module.path), folder_of(tree.modules[target].path)
            own, other = source.partition("/")[0], goal.partition("/")[0]
            if source != goal:
                found[goal].add(source if own == other else f"{own}/")
    return found


def test_the_page_on_architecture_says_who_imports_each_folder():
    page = (ROOT / "docs" / "guide" / "architecture.md").read_text()
    rows = re.findall(r"^\| `([^`]+/)` \| [^|]+ \| ([^|]*) \|$", page, re.MULTILINE)
    assert {folder: set(re.findall("`(.+?)`", by)) for folder, by in rows} == importers()


# -- names of the code ---------------------------------------------------------------------------------------

HINTS = {name: get_type_hints(importlib.import_module(f"{name}.train").BENCHMARK.config) for name in PACKAGES}
SECTIONS = {name: {key: hint for key, hint in hints.items() if is_dataclass(hint)} for name, hints in HINTS.items()}
GUIDES = dict.fromkeys((ROOT / "docs" / "guide").glob("*.md"), PACKAGES)
OWN = {ROOT / name / "README.md": (name,) for name in PACKAGES}


@pytest.mark.parametrize("page", [*GUIDES, *OWN], ids=lambda page: str(page.relative_to(ROOT)))
def test_configuration_keys_exist(page):
    sections = {section for name in PACKAGES for section in SECTIONS[name]}
    known = {
        f"{section}.{field.name}"
        for name in (GUIDES | OWN)[page]
        for section, hint in SECTIONS[name].items()
        for field in fields(hint)
    }
    named = set(re.findall(rf"`((?:{'|'.join(sections)})\.(?!py\b)\w+)", page.read_text()))
    assert named <= known and (named or page in GUIDES)


def test_rules_exist_that_pages_name():
    ids = re.compile(rf"\b(?:{'|'.join({id_[:3] for id_ in all_rules()})})\d\d\b")
    for page in (*PAGES, ROOT / "docs" / "reference" / "profiles.md"):
        assert set(ids.findall(page.read_text())) <= all_rules().keys(), page


def rows(page, header):
    """Return the first cells of the page's table that begins with this header."""
    _, _, table = page.read_text().partition(f"\n| {header} |")
    return [line.split("|")[1].strip() for line in table.split("\n\n")[0].splitlines()[2:]]


def test_tables_are_complete():
    cluster = ROOT / "docs" / "guide" / "cluster.md"
    launchers = rows(ROOT / "docs" / "reference" / "cluster.md", "launcher")
    assert [re.findall("`(.+?)`", cell)[0] for cell in launchers] == [one.name for one in LAUNCHERS]
    assert [cell.strip("`") for cell in rows(cluster, "`staging.mode`")] == list(get_args(Mode))
    for name in ("deepcam", "oc20"):
        formats = get_type_hints(SECTIONS[name]["data"])["format"].__args__
        assert [cell.strip("`") for cell in rows(ROOT / name / "README.md", "`data.format`")] == list(formats)


@pytest.mark.parametrize("name", PACKAGES)
def test_all_presets_are_listed(name):
    listed = {Path(link).name for link in re.findall(r"\]\((presets/[^)]+)", (ROOT / name / "README.md").read_text())}
    assert listed == {path.name for path in (ROOT / name / "presets").glob("*.yaml")}


# -- printed output ------------------------------------------------------------------------------------------

PRINTED = [
    (page, *match.groups())
    for page in PAGES
    for block in blocks(page)
    for match in re.finditer(r"^\$ mlperf-hpc check (\S+\.txt)$\n((?:(?!\$ ).*\n)+)", block, re.MULTILINE)
    if "/result" not in match[1]
]


@pytest.mark.parametrize(("page", "path", "shown"), PRINTED, ids=[f"{row[0].name}-{row[1]}" for row in PRINTED])
def test_the_checker_prints_what_the_pages_show(page, path, shown, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _, _, make, _ in STORIES[:2]:
        make(tmp_path / "examples")
    Path(path).parent.mkdir(exist_ok=True)
    if not Path(path).exists():
        shutil.copy(Path("examples", Path(path).name), path)
    monkeypatch.setattr(sys, "argv", [PROGRAM])
    with contextlib.redirect_stdout(io.StringIO()) as out:
        check([path])
    printed = [*out.getvalue().splitlines(), "…"]
    assert len(PRINTED) >= 3 and [line for line in shown.splitlines() if line and line not in printed] == []
