"""What README and docs tell to type can be typed, does what they say, and names what the code has."""

import argparse
import contextlib
import functools
import importlib
import io
import os
import re
import shlex
import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from common.benchmarks import PACKAGES
from common.command import PROGRAM
from common.ranks.launch import LAUNCHERS
from common.settings.machine import Mode
from compliance.check import main as check
from compliance.samples.log import SampleLog
from submission.cli import resolve_command
from tests.module_graph import Tree

ROOT = Path(__file__).resolve().parents[1]
GENERATED = {"rules.md", "profiles.md", "settings.md", "config.md"}
PAGES = [
    page
    for pattern in ("*.md", "*/README.md", "docs/*.md", "docs/*/*.md")
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
            words = shlex.split(line, comments=True) if re.search("-m |mlperf-hpc ", line) else []
            if "-m" in words:
                yield words[words.index("-m") + 1 :]
            elif PROGRAM in words and not words[-1].startswith("--help"):
                module, arguments = resolve_command(words[words.index(PROGRAM) + 1 :])
                yield [module.removesuffix(".__main__"), *arguments]


COMMANDS = sorted({tuple(words) for page in PAGES for words in commands(page) if words[0] not in ("pip", "pytest")})


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

    for name in ("parse_args", "parse_intermixed_args"):
        monkeypatch.setattr(argparse.ArgumentParser, name, parsing(getattr(argparse.ArgumentParser, name)))
    try:
        main_of(module)(arguments)
    except ParsedError:
        return
    except SystemExit as end:  # such as --help
        assert end.code == 0
    else:
        pytest.fail("the command did not parse its arguments")


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
    for variable, value in {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SCRATCH": "/s"}.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("TMPDIR", "/t")
    command = ["bash", "job.sh", *(["before"] if resumed else [])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    words = done.stdout.splitlines()
    module, *arguments = words[words.index("-m") + 1 :]
    assert module == f"{name}.train" and ("--resume" in arguments) == resumed
    assert main_of(module)([*arguments, "--print-config"]) == 0, capsys.readouterr().err
    shown = capsys.readouterr().out
    assert "data_dir: /s/" in shown and f"output_dir: {'before' if resumed else f'runs/{name}-7'}" in shown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page):
    for link in re.findall(r"\]\((?!http)([^)]+)\)", page.read_text()):
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if heading:
            titles = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
            assert heading in anchors, link


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "index.md").read_text()
    listed = {(ROOT / "docs" / link).resolve() for link in re.findall(r"\]\(([^)#]+)\)", index)}
    assert {page for page in PAGES if page.is_relative_to(ROOT / "docs")} - {ROOT / "docs" / "index.md"} <= listed


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


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().split()) <= 900


# -- names of the code ---------------------------------------------------------------------------------------

CONFIGS = {name: importlib.import_module(f"{name}.train").BENCHMARK.config for name in PACKAGES}
SECTIONS = {
    name: {section: hint for section, hint in get_type_hints(config).items() if is_dataclass(hint)}
    for name, config in CONFIGS.items()
}
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
    (page, block)
    for page in (ROOT / "README.md", ROOT / "docs" / "guide" / "check.md")
    for block in blocks(page)
    if re.search(r"^\$ mlperf-hpc check \w+\.txt$", block, re.MULTILINE)
]


@pytest.mark.parametrize(("page", "block"), PRINTED, ids=[f"{page.name}-{i}" for i, (page, _) in enumerate(PRINTED)])
def test_the_checker_prints_what_the_pages_show(page, block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("result_0.txt").write_bytes(SampleLog("cosmoflow").bytes())
    early = SampleLog("cosmoflow").last_evaluation(0.2).add_evaluation(0.12, "run_stop")
    Path("stopped_early.txt").write_bytes(early.bytes())
    monkeypatch.setattr(sys, "argv", [PROGRAM])
    command, _, shown = block[block.index("$ mlperf-hpc check") :].partition("\n")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        check(command.split()[3:])
    printed = out.getvalue().splitlines()
    missing = [line for line in shown.splitlines() if line and line not in printed]
    assert len(PRINTED) >= 3 and shown.strip() and missing == []


# -- after a finished run ------------------------------------------------------------------------------------

SMALL = {
    "cosmoflow": ["--train", "32", "--validation", "8"],
    "deepcam": ["--train", "16", "--validation", "8", "--test", "0"],
    "oc20": ["--train", "16", "--validation", "4"],
}
IN_README = {tuple(words) for words in commands(ROOT / "README.md")}
NEED_A_RUN = [
    words if words in IN_README else pytest.param(words, marks=pytest.mark.exhaustive)
    for words in COMMANDS
    if any(re.search(r"(^|=)runs/(cosmoflow|deepcam|oc20)-mini", word) for word in words)
    or words[1:] in (("mini",), ("mini", "--resume"))
]
"""The commands that a page shows for a finished run of a mini problem, and those that make one."""


def run(words, folder):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", *words]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return a function that gives a folder with a finished run of a benchmark's mini problem.

    It was trained for an epoch on a few samples of its data.
    """
    folder = tmp_path_factory.mktemp("reader")

    @functools.cache
    def train(name):
        made = run([f"{name}.synthesize", f"data/{name}-mini", *SMALL[name]], folder)
        assert made.returncode == 0, made.stderr
        trained = run([f"{name}.train", "mini", "train.epochs=1", "checkpoint.best=true"], folder)
        assert trained.returncode == 4 and "NOT reached" in trained.stdout, trained.stderr
        return folder

    return train


@pytest.mark.parametrize("words", NEED_A_RUN, ids=" ".join)
def test_commands_work_after_a_finished_run(words, finished):
    module = words[0]
    folder = finished(next(name for name in SMALL if name in " ".join(words)))
    if "--predictions" in words:  # `predict` comes before it on the page
        made = [module.replace("evaluate", "predict"), words[-1], "-o", words[words.index("--predictions") + 1]]
        (folder / made[-1]).unlink(missing_ok=True)
        assert run(made, folder).returncode == 0
    for option in {"-o", "--plot"} & set(words):
        (folder / words[words.index(option) + 1]).unlink(missing_ok=True)
    done = run(words, folder)
    if module.endswith(".train"):
        # The folder has a run: it is resumed, or refused with what to do.
        assert done.returncode in (0, 1, 4) and done.stdout + done.stderr
    elif module == "compliance.check":
        assert done.returncode == 1 and "QUA01" in done.stdout, "one epoch does not meet the target"
    elif module.endswith(".evaluate"):
        assert done.returncode == 1 and "not met" in done.stdout
    else:
        assert done.returncode == 0, done.stderr


# -- the page on training, in its order ----------------------------------------------------------------------

TRAIN_PAGE = ROOT / "docs" / "guide" / "train.md"
MISSED = {"torchrun": 1, "train": 4, "evaluate": 1, "predict": 0, "weights": 0, "check": 1, "round": 1}
"""The status of each command where the target is missed; torchrun makes 1 of each status but 0."""


def status_of(line):
    """Return the status that a line of the page ends with, on a few samples, which do not meet the target."""
    if "--print-config" in line or "--list-configs" in line:
        return 0
    command = line.partition("  #")[0]
    return next(status for name, status in MISSED.items() if re.search(rf"(^|\.|{PROGRAM} ){name}\b", command))


@pytest.mark.exhaustive
@pytest.mark.usefixtures("untraced")
def test_the_page_on_training_works_as_printed(tmp_path):
    """Each line of each block is run by a shell, in the page's order, on a few samples of the mini problem's data."""
    assert run(["cosmoflow.synthesize", "data/cosmoflow-mini", *SMALL["cosmoflow"]], tmp_path).returncode == 0
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PATH": path, "SCRATCH": "/scratch"}
    lines = [line for block in blocks(TRAIN_PAGE) for line in block.splitlines()]
    for line in lines:
        command = ["bash", "-c", line]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        of_ours = "Traceback" in done.stderr and "ChildFailedError" not in done.stderr  # torchrun shows one of its own
        assert not of_ours, done.stderr
        assert done.returncode == status_of(line), f"{line}\n{done.stdout}\n{done.stderr}"
    runs = tmp_path / "runs"
    assert len(lines) > 15 and len(list(runs.glob("eight/instance_*/ended.json"))) == 8
    assert (tmp_path / "out_of_bag.json").exists() and (tmp_path / "cosmoflow.safetensors").exists()


@pytest.mark.exhaustive
@pytest.mark.usefixtures("untraced")
def test_the_page_on_studies_works_as_printed(tmp_path):
    """Its plan and its commands, on a few samples of the mini problem's data."""
    assert run(["cosmoflow.synthesize", "data/cosmoflow-mini", *SMALL["cosmoflow"]], tmp_path).returncode == 0
    page = ROOT / "docs" / "guide" / "study.md"
    (tmp_path / "weak.yaml").write_text(re.search(r"^```yaml\n(.*?)^```", page.read_text(), re.M | re.S)[1])
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PATH": path}
    for line in (line for block in blocks(page) for line in block.splitlines()):
        command = ["bash", "-c", line.replace("=128,256", "=16,32")]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    for name in ("samples", "weak"):
        assert (tmp_path / "runs" / name / "study.html").exists() and list((tmp_path / "runs" / name).glob("*.svg"))
