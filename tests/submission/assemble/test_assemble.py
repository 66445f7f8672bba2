"""Run folders become a package that the checkers accept; no file is overwritten, no input changes."""

import gzip
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from common.errors import UsageError
from common.provenance import ROOT, source_hash
from common.record import PARTS_SCOPE, POWER_START
from compliance.engine import Options, check_paths
from compliance.model.layout import discover
from compliance.model.package import read_provenance
from compliance.samples.log import SampleLog
from compliance.samples.package import SYSTEM, SamplePackage, SamplePower
from submission.assemble import writing
from submission.assemble.__main__ import main
from submission.assemble.input_logs import AssemblyError
from submission.assemble.packing import Assembly
from submission.assemble.writing import assemble_package
from submission.manifest import verify_package
from tests.common.files import contents

ORGANISATION = "Example_University"
CODE = "benchmarks/cosmoflow/implementations/vendor"


class Place:
    """A folder with a system description, code and runs; `make` assembles them."""

    def __init__(self, folder):
        self.folder = folder
        self.system, self.code, self.out = folder / f"{SYSTEM}.json", folder / "code", folder / "out"
        self.root = self.out / ORGANISATION
        self.describe()
        self.code.mkdir()
        (self.code / "train.py").write_text("print('training')\n")
        (self.code / "run_and_time.sh").write_text("#!/bin/sh\n")

    def describe(self, **fields):
        self.system.write_text(json.dumps(SamplePackage().fields | fields))

    def run(self, number, log=None, name="runs"):
        path = self.folder / name / f"run_{number}" / "result_0.txt"
        path.parent.mkdir(parents=True)
        path.write_bytes((log or SampleLog(run=number)).bytes())
        return path

    def assembly(self, *runs, **options):
        given = {"sources": self.code, "implementation": "vendor"} | options
        return Assembly(runs=runs or (self.folder / "runs",), output=self.out, system=self.system, **given)

    def make(self, *runs, dry_run=False, **options):
        return assemble_package(self.assembly(*runs, **options), dry_run=dry_run)

    def logs(self, benchmark="cosmoflow", scaling="strong"):
        folder = self.root / "results" / SYSTEM / scaling / benchmark
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.txt")}


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def our_log(run, organisation="Example Organization", **config):
    """Return a log as the suite writes it, with the hash of its present sources."""
    resolved = {"output_dir": f"run_{run}", "train": {"seed": run, "epochs": 3}, "variant": "mini", **config}
    value = {
        "versions": {"python": "3.11.7", "mlperf-hpc-suite": "0.1.0"},
        "git_revision": "0123abcd",
        "source_sha256": source_hash(("common", "cosmoflow")),
        "host": {"cores": 2},
        "config": resolved | {"data": {"data_dir": "data/mini"}},
    }
    log = SampleLog(division="open", run=run, variant="mini").set("submission_org", organisation)
    return log.add("provenance", value, before="submission_benchmark").set("submission_platform", "laptop")


def test_a_whole_series_becomes_a_valid_package(place):
    paths = [place.run(number) for number in range(1, 11)]
    before = contents(place.folder)
    made = place.make()
    assert made.root == place.root and not made.warnings and not made.incomplete
    assert place.logs() == {
        f"result_{at}.txt": path.read_bytes() for at, path in enumerate(paths)
    }  # run_10 is the last
    assert (place.root / "systems" / place.system.name).read_bytes() == place.system.read_bytes()
    assert (place.root / CODE / "train.py").exists()
    assert sorted(made.written) == sorted(path for path in place.root.rglob("*") if path.is_file())
    assert check_paths([place.root], Options()).verdict != "FAIL"
    assert {name: content for name, content in contents(place.folder).items() if name in before} == before


def test_benchmarks_are_separated_and_few_runs_are_incomplete(place):
    place.run(1)
    place.run(2, SampleLog("deepcam", run=2))
    made = place.make()
    assert list(place.logs()) == list(place.logs("deepcam")) == ["result_0.txt"]
    said = {f"{SYSTEM}/strong/cosmoflow": "1 of 10 runs", f"{SYSTEM}/strong/deepcam": "1 of 5 runs"}
    assert made.incomplete == said and "cosmoflow and deepcam get the same code" in made.warnings[0]
    recorded = read_provenance(place.root)
    assert not recorded.complete and recorded.incomplete == said


def test_a_second_call_writes_nothing_and_a_later_one_extends(place):
    first, second, third = (place.run(number) for number in (1, 2, 3))
    place.make(third, first)
    there = contents(place.root)
    assert not place.make(third, first).written and contents(place.root) == there
    made = place.make(first, second, third)
    assert [path.name for path in made.written] == ["result_2.txt", "provenance.json"]
    with pytest.raises(AssemblyError, match=r"differ in opt_weight_decay: .* in .*result_0\.txt, 0\.1 in .*run_4"):
        place.make(place.run(4, SampleLog(run=4).set("opt_weight_decay", 0.1)))
    assert place.logs() == {f"result_{at}.txt": path.read_bytes() for at, path in enumerate((first, third, second))}


def test_changed_code_matters_only_for_new_runs(place):
    first, second = place.run(1), place.run(2)
    place.make(first)
    (place.code / "train.py").write_text("print('training, otherwise')\n")
    assert not place.make(first).written
    with pytest.raises(AssemblyError, match=rf"{CODE}/train\.py exists and differs from {place.code}/train\.py"):
        place.make(first, second)
    place.make(first, second, implementation="vendor-2")
    assert (place.root / "benchmarks/cosmoflow/implementations/vendor-2/train.py").exists()


def test_throughput_results_and_pruned_instances(place):
    for number in range(1, 13):
        place.run(number, name="models")
    pruned = place.run(20, SampleLog(run=20).drop("run_stop"), name="pruned")  # a node failed
    place.make(place.folder / "models", scaling="weak", pruned=(pruned,))
    assert len(place.logs(scaling="weak")) == 13
    assert place.logs(scaling="weak")["pruned_results/result_0.txt"] == pruned.read_bytes()
    with pytest.raises(AssemblyError, match=r"already in the package, as .*pruned_results/result_0\.txt"):
        place.make(pruned, scaling="weak", unfinished=True)


def damaged(change):
    return lambda place: place.run(2, change(SampleLog(run=2)))


TOKEN = "RQPONMLKJIHGFEDCBA" * 2
REFUSED = {
    "no logs": (lambda place: (place.folder / "runs").mkdir(), "no logs"),
    "the same twice": (lambda place: (place.run(1), place.run(2, SampleLog(run=1))), "are the same log"),
    "a run that goes on": (damaged(lambda log: log.drop("run_stop")), "no run_stop in .*run_2"),
    "a log that was cut, and one more": (
        lambda place: (
            place.run(1, SampleLog(run=1).drop("run_stop")),
            (path := place.run(2)).write_bytes(path.read_bytes()[:-300]),
        ),
        r"(?s)run_2.* ends in the middle of line \d+.*no run_stop in .*run_1",
    ),
    "an unknown benchmark": (
        damaged(lambda log: log.set("submission_benchmark", "resnet")),
        "is not a known benchmark",
    ),
    "own data": (damaged(lambda log: log.add("dataset_variant", "own")), "dataset_variant is own"),
    "no target": (damaged(lambda log: log.add("quality_target", "none")), "trained without a target"),
    "a benchmark of no type": (
        damaged(lambda log: log.set("submission_benchmark", ["oc20"])),
        "is not a known benchmark",
    ),
    "two organisations": (
        lambda place: (place.run(1), damaged(lambda log: log.set("submission_org", "Other"))(place)),
        r"several organisations: Example University in .*run_1.*\(cosmoflow\), Other in .*run_2",
    ),
    "two platforms": (
        lambda place: (place.run(1), damaged(lambda log: log.set("submission_platform", "other"))(place)),
        "several results of cosmoflow: example_n64 in .*run_1.*other in .*run_2",
    ),
    "another setting": (
        lambda place: (place.run(1), damaged(lambda log: log.set("opt_weight_decay", 0.1))(place)),
        "the runs differ in opt_weight_decay: .* in .*run_1.*, 0.1 in .*run_2",
    ),
    "more runs than a result has": (
        lambda place: [place.run(number) for number in range(1, 12)],
        "11 logs of cosmoflow.*a time-to-train result has 10 runs.*--scaling weak",
    ),
    "two folders of logs": (
        lambda place: (place.run(1), place.run(2).rename(place.folder / "runs/run_1/result_1.txt"), place.run(3)),
        "several folders.*: 2 in .*run_1, 1 in .*run_3.*name the logs",
    ),
    "no organisation": (damaged(lambda log: log.drop("submission_org")), "use --organisation"),
    "an organisation that leads out": (
        damaged(lambda log: log.set("submission_org", "../x")),
        "not a plain folder name",
    ),
    "a placeholder as organisation": (
        damaged(lambda log: log.set("submission_org", "SUBMISSION_ORG_PLACEHOLDER")),
        "a placeholder: use --organisation NAME",
    ),
    "a placeholder as system": (
        lambda place: (
            place.run(1),
            setattr(place, "system", place.system.rename(place.folder / "SUBMISSION_PLATFORM_PLACEHOLDER.json")),
        ),
        "a placeholder: rename it",
    ),
    "placeholders in the description": (
        lambda place: (place.run(1), place.describe(cooling="TO BE FILLED IN: air or liquid", framework="TBD")),
        "placeholders in .*: cooling, framework; .*--draft",
    ),
    "a count that is no number": (
        lambda place: (place.run(1), place.describe(number_of_nodes="sixteen")),
        "number_of_nodes .*sixteen.*PKG06.*--draft",
    ),
    "a description of other machines than the logs": (
        lambda place: (place.run(1), place.describe(accelerators_per_node="1")),
        "size of the system.*RUN09",
    ),
    "another benchmark's log of another system": (
        lambda place: (place.run(1), place.run(2, SampleLog("openfold").set("number_of_nodes", 18))),
        "size.*RUN09.*leave out logs that are not of this system .*run_1.* of cosmoflow, .*run_2.* of openfold",
    ),
    "an empty log": (lambda place: place.run(1).write_bytes(b"\n"), "result_0.txt is empty: copy it again"),
    "no JSON": (lambda place: (place.run(1), place.system.write_text("{")), "is not valid JSON"),
    "a compressed log": (lambda place: place.run(1).write_bytes(gzip.compress(b"x")), "gunzip"),
    "a link to nothing": (
        lambda place: (place.run(1), (place.folder / "runs/result_1.txt").symlink_to("nowhere")),
        "cannot read .*result_1.txt: this is a link to .*/runs/nowhere, which does not exist",
    ),
    "a link to nothing in the code": (
        lambda place: (place.run(1), (place.code / "link").symlink_to("nowhere")),
        "cannot read .*(No such file|not a file)",
    ),
    "a link that leaves the code": (
        lambda place: (place.run(1), (place.code / "passwd").symlink_to("/etc/passwd")),
        "links lead out of .*published.*code/passwd",
    ),
    "a folder link that leaves the code": (
        lambda place: (place.run(1), (place.code / "keys").symlink_to(place.folder / "systems")),
        "links lead out of .*published.*code/keys",
    ),
    "a token in the code": (
        lambda place: (place.run(1), (place.code / "run.sh").write_text(f"ls\nexport TOKEN=ghp_{TOKEN}\n")),
        r"secrets would be published: .*code/run.sh:2 \(token of GitHub, ghp_…\)",
    ),
    "a token in a log": (
        damaged(lambda log: log.add("notice", f"hf_{TOKEN[:34]}")),
        "secrets would be published: .*result_0.txt:.*token of Hugging Face",
    ),
    "a token in compressed code": (
        lambda place: (
            place.run(1),
            (place.code / "run.sh.gz").write_bytes(gzip.compress(b"ls\nexport TOKEN=ghp_" + TOKEN.encode())),
        ),
        r"secrets would be published: .*code/run.sh.gz:2 \(token of GitHub, ghp_…\)",
    ),
    "a pipe in the code": (
        lambda place: (place.run(1), os.mkfifo(place.code / "pipe")),
        "cannot read .*pipe: not a file",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_invalid_input_is_refused_and_nothing_is_written(place, what):
    prepare, message = REFUSED[what]
    prepare(place)
    with pytest.raises(AssemblyError, match=message):
        place.make()
    assert not place.out.exists()


def test_a_draft_and_mini_runs_may_have_an_open_description(place):
    place.describe(cooling="TO BE FILLED IN")
    place.run(1)
    assert any("cooling; complete systems" in warning for warning in place.make(draft=True).warnings)
    place.run(2, SampleLog(variant="mini", run=2), name="mini")
    place.out = place.folder / "mini-out"
    assert any("cooling" in warning for warning in place.make(place.folder / "mini").warnings)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"output": Path("runs/out")}, UsageError, r"is inside .*runs"),
        ({"pruned": (Path("runs"),)}, UsageError, "--scaling weak"),
        ({"organisation": "NAME"}, AssemblyError, r'^--organisation is "NAME", a placeholder'),
        ({"implementation": "../x"}, UsageError, "--implementation"),
        ({"system": Path("runs")}, UsageError, "--system runs is a folder; name the description in it"),
    ],
)
def test_wrong_use(place, monkeypatch, options, error, message):
    place.run(1)
    monkeypatch.chdir(place.folder)
    with pytest.raises(error, match=message):
        assemble_package(replace(place.assembly(), **options))
    assert not place.out.exists()


def test_runs_that_are_not_there_are_wrong_use_of_the_command(place, call):
    said = call(main, place.folder / "nowhere", "-o", place.out, "--system", place.system, status=2)
    assert re.match("error: no such file or folder: .*nowhere", said.err) and not place.out.exists()
    said = call(main, place.folder / "runs", "-o", place.out, status=2)
    assert "--system FILE is missing" in said.err and "submission.system -o FILE" in said.err


def test_no_argument_and_no_log_is_left_out_silently(place):
    paths = [place.run(number) for number in (1, 2)]
    other = paths[1].with_name("Result 8.log")
    other.write_bytes(SampleLog(run=3).bytes())
    paths[1].with_name("train.log").write_text("epoch 1")
    warnings = place.make().warnings
    assert len(warnings) == 1 and str(other) in warnings[0] and "train.log" not in warnings[0]
    paths[1].rename(paths[1].with_name("job_2.out"))
    other.unlink()
    assert not place.make(*(path.parent for path in paths)).warnings, "the check reads it, too"
    (empty := place.folder / "empty").mkdir()
    with pytest.raises(AssemblyError, match="empty: no logs"):
        place.make(paths[0], empty)


@pytest.mark.parametrize("separator", [b'": ', b'":'])
@pytest.mark.parametrize(("how", "cause"), [("failed", "the disk is full"), ("stopped", "SIGUSR1")])
def test_an_error_of_the_machine_is_no_result(place, how, cause, separator):
    """Its log has a run_stop, as that of a run that missed its target."""
    log = SampleLog(run=1).meta("run_stop", "status", "aborted").meta("run_stop", "ended", how)
    path = place.run(1, log.meta("run_stop", "cause", cause))
    path.write_bytes(path.read_bytes().replace(b'": ', separator))
    with pytest.raises(AssemblyError, match=f"{cause}, by its own record, which is not a result"):
        place.make()
    place.make(unfinished=True)
    assert list(place.logs()) == ["result_0.txt"]


def test_no_file_is_overwritten_and_edited_scripts_are_kept(place):
    place.run(1)
    place.make()
    script = place.root / "benchmarks/cosmoflow" / SYSTEM / "run_and_time.sh"
    script.write_text("#!/bin/sh\n# for our cluster\n")
    place.run(2)
    place.make()
    assert script.read_text().endswith("our cluster\n")
    place.describe(cooling="water")
    with pytest.raises(AssemblyError, match=rf"{SYSTEM}\.json exists and differs from .*{SYSTEM}\.json"):
        place.make()


def test_a_log_that_was_edited_in_the_package_is_noticed(place):
    place.run(1)
    place.make()
    log = place.root / "results" / SYSTEM / "strong/cosmoflow/result_0.txt"
    log.write_bytes(log.read_bytes().replace(b'"success"', b'"aborted"'))
    with pytest.raises(AssemblyError, match=r"result_0\.txt has changed since"):
        place.make()


def test_redacted_copies_keep_lines_and_are_recorded(place):
    noise = b"srun: job of Jane.Roe@example.org in /home/jroe/runs\n"
    path = place.run(1, SampleLog(run=1).add("opt_note", "ask\njroe@example.org, see /home/jroe/notes"))
    path.write_bytes(noise + path.read_bytes())
    original = path.read_bytes()
    place.make(redact=True)
    copy = place.logs()["result_0.txt"]
    assert path.read_bytes() == original and copy.count(b"\n") == original.count(b"\n")
    assert b"jroe" not in copy and b"Roe" not in copy
    records = [json.loads(line.partition(b":::MLLOG ")[2]) for line in copy.splitlines()[1:]]
    assert [r["value"] for r in records if r["key"] == "opt_note"] == [
        "ask\n[mail address], see [home directory]/notes"
    ]
    redaction = read_provenance(place.root).logs[f"results/{SYSTEM}/strong/cosmoflow/result_0.txt"].redaction
    assert redaction.counts == {"mail address": 2, "home directory": 2} and len(redaction.original_sha256) == 64
    assert not place.make(redact=True).written
    with pytest.raises(AssemblyError, match="with --redact: do the same"):
        place.make()


def test_nothing_is_written_through_a_link_out_of_the_package(place):
    place.run(1)
    (place.folder / "elsewhere").mkdir()
    place.root.mkdir(parents=True)
    (place.root / "results").symlink_to(place.folder / "elsewhere")
    with pytest.raises(AssemblyError, match=r"results/.* leads out of .* through a link"):
        place.make()
    assert not list((place.folder / "elsewhere").iterdir())


def test_links_among_the_inputs_are_read_through(place):
    (place.folder / "scratch").mkdir()
    place.run(1, name="scratch")
    (place.folder / "runs").symlink_to(place.folder / "scratch")
    (place.folder / "scratch/loop").symlink_to(place.folder / "scratch")
    (place.code / "train.py").rename(place.code / "main.py")
    (place.code / "train.py").symlink_to("main.py")
    place.make()
    assert list(place.logs()) == ["result_0.txt"]
    assert not [path for path in place.root.rglob("*") if path.is_symlink()]


def test_logs_of_other_programs_without_their_code(place):
    place.run(1, SampleLog(run=1).set("submission_platform", "x"))
    made = place.make(sources=None, name=SYSTEM)
    assert not (place.root / "benchmarks").exists() and "--sources" in made.warnings[1]
    assert "submission_platform" in made.warnings[0]
    log = read_provenance(place.root).logs[f"results/{SYSTEM}/strong/cosmoflow/result_0.txt"]
    assert (log.source_sha256, log.implementation, log.versions, log.configuration) == (None,) * 4


def test_our_own_logs_come_with_their_code_and_scripts_that_run(place, monkeypatch):
    monkeypatch.chdir(place.folder)
    place.describe(division="open")
    system = place.system.rename(place.folder / "laptop.json")
    for number in (1, 2):
        place.run(number, our_log(number))
    made = assemble_package(Assembly(runs=(place.folder / "runs",), output=place.out, system=system))
    assert made.warnings == [] and made.root.name == "Example_Organization"
    recorded = read_provenance(made.root)
    code = "benchmarks/cosmoflow/implementations/mlperf-hpc-suite"
    log = recorded.logs["results/laptop/strong/cosmoflow/result_1.txt"]
    assert log.implementation == code and recorded.implementations == {code: source_hash(("common", "cosmoflow"))}
    assert log.data["data_dir"] == "data/mini" and len(recorded.configurations) == 1
    assert (made.root / code / "setup.cfg").read_bytes() == (ROOT / "setup.cfg").read_bytes()
    assert not list((made.root / code).rglob("__pycache__"))
    scripts = made.root / "benchmarks/cosmoflow/laptop"
    config = yaml.safe_load((scripts / "config.yaml").read_text())
    assert config["train"] == {"seed": None, "epochs": 3} and "output_dir" not in config
    for script in scripts.glob("*.sh"):
        subprocess.run(["bash", "-n", script], check=True)
    python = place.folder / "work/venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)
    done = subprocess.run([scripts / "run_and_time.sh", "train.seed=7"], capture_output=True, text=True, check=True)
    said = done.stdout.splitlines()
    assert said[:4] == ["-P", "-m", "cosmoflow.train", str(scripts / "config.yaml")] and said[-1] == "train.seed=7"


def test_the_next_call_repairs_what_a_killed_one_left(place, monkeypatch):
    for number in (1, 2):
        place.run(number)
    place.make()
    expected = contents(place.root)
    folder = place.root / "results" / SYSTEM / "strong/cosmoflow"
    (folder / "result_1.txt").rename(folder / "result_1.txt.0123456789abcdef.tmp")
    (place.root / "provenance.json").unlink()
    place.make()
    assert contents(place.root) == expected


@pytest.mark.parametrize("kind", ["new", "extended"])
def test_an_interrupted_call_leaves_the_package_as_it_was(place, monkeypatch, kind):
    """At the third file, and then by a signal that no process can handle."""
    runs = [place.run(number) for number in (1, 2, 3, 4)]
    if kind == "extended":
        place.make(runs[0])
    before, write, left = contents(place.out), writing._write_file, itertools.count()

    def fails(*arguments):
        if next(left) == 2:
            raise OSError(5, "Input/output error", str(arguments[0]))
        write(*arguments)

    monkeypatch.setattr(writing, "_write_file", fails)
    with pytest.raises(OSError, match="Input/output error"):
        place.make()
    assert contents(place.out) == before and place.root.exists() == (kind == "extended")
    killed = place.out / f".{place.root.name}.0123456789abcdef.tmp"
    shutil.copytree(place.make(runs[0]).root, killed / place.root.name)
    assert len(discover([str(place.out)]).packages) == 1
    place.make()
    assert len(place.logs()) == 4 and not killed.exists() and list(place.out.iterdir()) == [place.root]


def test_each_configuration_gets_its_own_file(place):
    system = place.system.rename(place.folder / "laptop.json")
    for number, dropout in ((1, 0.1), (2, 0.5), (3, 0.1)):
        place.run(number, our_log(number, model={"dropout": dropout}))
    made = assemble_package(Assembly(runs=(place.folder / "runs",), output=place.out, system=system))
    found = {path.name: yaml.safe_load(path.read_text())["model"] for path in made.root.rglob("laptop/config*.yaml")}
    assert found == {"config.yaml": {"dropout": 0.1}, "config_2.yaml": {"dropout": 0.5}}


def test_dry_run_shows_what_the_command_then_writes(place, call):
    place.run(1)
    out = place.folder / "my out"
    given = [place.folder / "runs", "-o", out, "--system", place.system, "--sources", place.code]
    shown = call(main, *given, "--dry-run").out
    assert f"{ORGANISATION}/results/{SYSTEM}/strong/cosmoflow/result_0.txt" in shown and not out.exists()
    would = re.search(r"would write (\d+) files, 0 unchanged", shown)[1]
    shown = call(main, *given).out
    assert f"INCOMPLETE: {SYSTEM}/strong/cosmoflow: 1 of 10 runs" in shown
    assert f"wrote {would} files, 0 unchanged" in shown and f"check '{out / ORGANISATION}'" in shown
    assert f"would write 0 files, {would} unchanged" in call(main, *given, "--dry-run").out
    place.describe(cooling="air")
    assert "nothing was written" in call(main, *given, status=1).err
    assert verify_package(out / ORGANISATION) == []


def test_the_official_package_checker_accepts_the_layout(place):
    pytest.importorskip("mlperf_logging")
    place.describe(division="open")
    for number in range(1, 11):
        place.run(number, SampleLog(division="open", run=number))
    place.make()
    command = [sys.executable, "-m", "mlperf_logging.package_checker", str(place.root), "hpc", "3.0.0"]
    elsewhere = place.folder / "elsewhere"
    elsewhere.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    done = subprocess.run(command, check=False, cwd=elsewhere, capture_output=True, text=True, env=environment)
    said = done.stdout + done.stderr + "".join(path.read_text() for path in elsewhere.glob("*.log"))
    assert "FOUND NO ERRORS" in said and "WARNING" not in said


@pytest.mark.parametrize(
    ("platform", "file", "refused"),
    [
        ("256xNVIDIA DGX H100", f"{SYSTEM}.json", False),
        (SYSTEM, f"{SYSTEM}.json", False),
        ("512xNVIDIA DGX A100", f"{SYSTEM}.json", True),
        ("256xNVIDIA DGX H100", "system.json", True),
        ("node_7", "node_7_final_v2.json", True),
        ("node_7", "node_7_pytorch.json", False),
    ],
)
def test_a_system_of_another_name_than_the_platform_is_refused_unless_it_is_given(place, platform, file, refused):
    place.describe(system_name="NVIDIA DGX-H100 SuperPOD")
    place.system = place.system.rename(place.system.with_name(file))
    place.run(1, SampleLog(run=1).set("submission_platform", platform))
    if refused:
        platform = "_".join(platform.split())
        with pytest.raises(AssemblyError, match=rf"{file}: .*rename it to {platform}\.json, or add --name {platform} "):
            place.make()
    place.make(name="H100" if refused else None)
    assert (place.root / "systems/H100.json").exists() == refused


def power_folder(place, number, scope="node", name="node_0.txt"):
    """Measure a run in its folder, as the training does."""
    path = place.folder / "runs" / f"run_{number}" / "power" / name
    path.parent.mkdir(exist_ok=True)
    log = SampleLog(run=number)
    begin_ms, end_ms = (log.records_of(key)[-1]["time_ms"] for key in ("run_start", "run_stop"))
    path.write_bytes(SamplePower.node(begin_ms, end_ms, number).set(POWER_START, None, scope=scope).bytes())
    return path


def test_power_files_go_where_the_layout_wants_them(place):
    place.describe(number_of_nodes="1")
    paths = []
    for number in range(1, 11):
        place.run(number, SampleLog(run=number).set("number_of_nodes", 1))
        paths.append(power_folder(place, number))
        paths[-1].with_name("sw_0.txt").write_bytes(SamplePower.switch(1_700_000_000_000, 1_700_000_100_000, 0).bytes())
    (paths[0].parent / "rapl_0.txt").write_bytes(paths[0].read_bytes())
    made = place.make()
    folder = place.root / "results" / SYSTEM / "strong/cosmoflow/power"
    assert [(folder / f"result_{at}/node_0.txt").read_bytes() for at in range(10)] == [p.read_bytes() for p in paths]
    assert sorted(path.name for path in (folder / "result_0").iterdir()) == ["node_0.txt", "sw_0.txt"]
    assert not [text for text in made.warnings if "power" in text] and not place.make().written
    found = check_paths([place.root], Options()).findings
    assert not [one for one in found if one.rule.startswith("POW") and one.severity == "error"]
    paths[0].write_bytes(paths[1].read_bytes())
    with pytest.raises(AssemblyError, match=r"power/result_0/node_0\.txt exists and differs"):
        place.make()


@pytest.mark.parametrize("name", ["rapl_0.txt", "node_0.txt"])
def test_estimates_of_parts_are_told_and_not_packed(name, place):
    place.run(1)
    power_folder(place, 1, PARTS_SCOPE, name)
    made = place.make()
    (warning,) = [text for text in made.warnings if "power" in text]
    assert "its power was only estimated" in warning and name in warning
    assert not list(place.root.rglob("power"))


def test_the_logs_of_a_package_keep_their_own_power_files(place):
    """By their new numbers; one without power files gets none of the runs beside it."""
    folder = place.folder / "runs"
    for number in (1, 2, 3):
        place.run(number).rename(folder / f"result_{number}.txt")
    for number in (2, 3):
        own = folder / "power" / f"result_{number}"
        own.mkdir(parents=True)
        power_folder(place, number).rename(own / "node_0.txt")
    assert not [text for text in place.make().warnings if "power" in text]
    packed = {path.relative_to(place.root).as_posix() for path in place.root.rglob("power/*/*")}
    assert packed == {f"results/{SYSTEM}/strong/cosmoflow/power/result_{at}/node_0.txt" for at in (1, 2)}


@pytest.mark.parametrize("name", ["node_1.txt.gz", "Node_1.txt", "node_1.csv"])
def test_power_files_with_other_names_are_told(name, place):
    place.run(1)
    whole = power_folder(place, 1)
    whole.with_name(name).write_bytes(whole.read_bytes())
    (whole.parent / "notes").mkdir()
    (warning,) = [text for text in place.make().warnings if "power" in text]
    assert f"not packed with its power files: {name}; expected" in warning and "estimated" not in warning
    assert [path.name for path in place.root.rglob("power/*/*")] == ["node_0.txt"]
