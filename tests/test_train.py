"""Training from the command line: the same curve however it is started or interrupted, and clear errors."""

import csv
import json
import re
import resource
import shlex
import shutil
import sys
from operator import mul
from pathlib import Path
from typing import Final
from unittest.mock import DEFAULT, Mock

import jsonschema
import pytest
import torch

import common.training.weights
import compliance
import submission.assemble.__main__
import submission.system.__main__
from common.commands.train import answer_at_once
from common.config import load
from common.data import manifest
from common.ending import Ending, read_ending
from common.processes import usable_cores
from common.record import read_run_times, read_value
from compliance.benchmarks import MINIS
from tests.conformance import official
from tests.conformance.variants.damaged_logs import PUBLISHED
from tests.problems import ROOT, SAME, STAGED, curve, flat, mpirun, run_process, torchrun, write_config

FOM = re.compile(
    r"FOM (?P<benchmark>\w+) samples/s (?P<rate>\S+) units 1 batch \d+ dtype \w+ spread (?P<spread>\S+) "
    r"minutes (?P<minutes>\S+) epochs 2 quality (?P<quality>\S+)"
)


def find_errors(path):
    return {finding.rule for finding in compliance.check_logs([path]).findings if finding.severity == "error"}


def test_a_run_has_a_figure_of_merit(case, run, capsys):
    assert run("output_dir=run", "train.epochs=2") == 4
    line = FOM.fullmatch(capsys.readouterr().out.splitlines()[-1])
    found = json.loads(Path("run/fom.json").read_text())
    jsonschema.validate(found, json.loads((ROOT / "docs/reference/fom.schema.json").read_text()))
    with Path("run/history.csv").open() as file:
        rates = [float(row["samples_per_s"]) for row in csv.DictReader(file)]
    assert found["epoch_samples_per_s"] == rates and found["samples_per_s"] == pytest.approx(sum(rates) / 2)
    assert found["quality"] == curve("run")[-1][1] and not found["target_met"] and found["energy_j"] is None
    log = Path("run/result_0.txt")
    start, stop = read_run_times(log)
    assert found["minutes"] == (stop - start) / 60_000 > 0
    assert line["benchmark"] == case.name and float(line["rate"]) == pytest.approx(found["samples_per_s"], rel=1e-5)
    assert float(line["quality"]) == pytest.approx(found["quality"], rel=1e-5)
    assert found["utilization"] is found["peak_format"] is None  # of a processor
    assert found["parameters"] == read_value(log, "number_of_parameters")
    assert found["train_samples"] == read_value(log, "train_samples")
    samples = sum(map(mul, rates, found["epoch_train_s"]))
    flops = read_value(log, "flop_per_sample")["training"] * samples / sum(found["epoch_train_s"])
    assert found["flop_per_s"] == pytest.approx(flops) and found["loss"] == curve("run")[-1][0]
    assert run("output_dir=run", "train.epochs=3", "--resume") == 4
    assert len(json.loads(Path("run/fom.json").read_text())["epoch_samples_per_s"]) == 3


@pytest.mark.one_benchmark
def test_the_share_of_the_peak_follows_from_what_the_log_states(case, run, monkeypatch):
    monkeypatch.setattr("common.training.merit.read_model_name", lambda device: "NVIDIA H100 80GB HBM3")
    assert run("output_dir=run", "train.epochs=2", "precision.dtype=bf16") == 4
    found, log = json.loads(Path("run/fom.json").read_text()), Path("run/result_0.txt")
    flop = read_value(log, "flop_per_sample")
    samples = [2 * read_value(log, key) for key in ("train_samples", "eval_samples")]
    total = flop["training"] * samples[0] + flop["evaluation"] * samples[1]
    assert found["utilization"] == pytest.approx(total / (60 * found["minutes"]) / 989.4e12, rel=1e-6)
    assert found["peak_format"] == "bf16" and flop["training"] > 2 * flop["evaluation"] > 0


def test_a_run_writes_a_log_that_the_checker_understands(case, data, run, capsys):
    assert run(f"train.target={case.met}", "output_dir=met") == 0
    assert (
        f'"data_sha256": "{manifest.read_manifest(data / manifest.NAME).compute_digest()}"'
        in Path("met/result_0.txt").read_text()
    )
    assert "reached after 1 epoch" in capsys.readouterr().out
    # 24 samples are not the dataset, and this is not the target: nothing else is wrong.
    assert find_errors("met/result_0.txt") == {"QUA01"}
    if case.name in PUBLISHED:
        with official.official_tool():
            assert set(official.check("met/result_0.txt", "3.0").keys) == {case.quality}


@pytest.mark.parametrize(
    "launcher", [torchrun, pytest.param(mpirun, marks=[pytest.mark.one_benchmark, pytest.mark.exhaustive])]
)
def test_two_ranks_have_the_curve_of_one(case, start, finished_run, launcher):
    """Under mpirun they are stopped and resumed on the way."""
    whole = ["train.epochs=2"]
    for arguments in (["train.epochs=1"], [*whole, "--resume"]) if launcher is mpirun else (whole,):
        started = start("output_dir=two", *case.shared, *arguments, launcher=launcher(2))
        out, err = started.communicate(timeout=120)
        assert started.returncode != 0 and "NOT reached after" in out, err
        if launcher is torchrun:  # its report of failures says what is none
            assert "no error: the run is over without meeting its target" in err
    assert flat(curve("two")) == pytest.approx(flat(curve(finished_run)[:2]), **SAME)


@pytest.mark.exhaustive
@pytest.mark.one_benchmark
def test_three_ranks_that_go_on_have_the_bits_of_those_that_never_stopped(start):
    """The order in which three numbers are added follows from the first backward pass of a process."""
    for arguments in (["output_dir=whole"], ["output_dir=two", "train.epochs=2"], ["output_dir=two", "--resume"]):
        out, err = start(*arguments, launcher=torchrun(3)).communicate(timeout=120)
        assert "NOT reached after" in out, err
    assert curve("two") == curve("whole")


@pytest.mark.exhaustive
@pytest.mark.one_benchmark
def test_ranks_that_only_evaluate_give_the_same_curve(case, start, finished_run):
    started = start("output_dir=four", *case.shared, "train.eval_ranks=2", launcher=torchrun(4))
    out, err = started.communicate(timeout=120)
    assert started.returncode != 0 and "4 ranks (2 of them evaluate)" in out, err
    assert flat(curve("four")) == pytest.approx(flat(curve(finished_run)), **SAME)
    started = start("output_dir=x", *case.shared, "train.eval_ranks=2", "staging.mode=memory", launcher=torchrun(4))
    assert "a node has ranks of both kinds" in started.communicate(timeout=120)[1]
    assert find_errors("four/result_0.txt") == {"QUA01", "QUA03"}


def test_the_last_lines_of_a_run_are_commands_for_it(case, run, capsys):
    """Run each as printed; only a draft has a system description with fields to fill in."""
    run("train.epochs=2")
    commands = re.findall(
        r"^(?:\w+ it:)? +python -m (\w+ \w+|\S+) (.*?)(?:   \(.*)?$", capsys.readouterr().out, re.MULTILINE
    )
    of_run = [f"{case.name} evaluate", f"{case.name} predict", "common.training.weights"]
    assert [name for name, _ in commands] == ["compliance.check", *of_run, "submission.system", "submission.assemble"]
    arguments = {name: shlex.split(given) for name, given in commands}
    assert case.evaluate.main(arguments[f"{case.name} evaluate"]) == 1
    said = capsys.readouterr().out.splitlines()[-1]
    quality = f"{case.quality} {curve('run')[-1][1]:.6g}"
    assert f"epoch-0002-step-0000000.pt: {quality} on 7 validation samples, after 2 epochs; target " in said
    assert case.predict.main(arguments[f"{case.name} predict"]) == 0 and list(Path("run").glob("predictions.*"))
    assert (
        common.training.weights.main(arguments["common.training.weights"]) == 0
        and Path(f"run/{case.name}.safetensors").exists()
    )
    compliance.check_logs(arguments["compliance.check"])
    assert submission.system.__main__.main(arguments["submission.system"]) == 0
    assert submission.assemble.__main__.main([*arguments["submission.assemble"], "--draft"]) == 0
    said = capsys.readouterr()
    assert "INCOMPLETE" in said.out and "warning: submission_platform" not in said.err
    # The problem of the test is not the benchmark's, one run is too few, and the description has fields to fill in.
    assert {rule for rule in find_errors("out") if rule.startswith(("PKG", "SYS"))} == {"PKG20"}


@pytest.mark.one_benchmark
def test_evaluation_finds_the_checkpoint_and_says_where_it_looked(case, run_copy, data, capsys):
    checkpoint = "run/checkpoints/epoch-0004-step-0000000.pt"
    Path("empty").mkdir()
    for words, status, said in (
        ([checkpoint, f"data.data_dir={data}"], 1, ""),
        ([checkpoint], 2, f"{case.name}: no such folder here"),
        (["nowhere.pt"], 1, "no such checkpoint"),
        (["empty"], 1, "empty: no checkpoint in this folder"),
        (["run/result_0.txt"], 1, "run/result_0.txt: not a checkpoint; expected the folder of a run"),
    ):
        assert case.evaluate.main(words) == status
        assert said in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        case.evaluate.main([])
    assert "override" not in capsys.readouterr().err


@pytest.mark.one_benchmark
def test_a_resumed_run_keeps_its_settings(case, run, capsys):
    run("train.epochs=1")
    assert run("train.epochs=2", "schedule.base_lr=0.5", "--resume") == 1
    assert "is 0.5, but" in capsys.readouterr().err
    assert run("train.epochs=2", 'submission.round="1.0"', "--resume") == 1
    assert 'submission.round is "1.0", but' in capsys.readouterr().err
    assert run("train.epochs=2", "--resume", "data.workers=1") == 4 and len(curve("run")) == 2
    assert run("--resume", "run", "train.epochs=3") == 4 and len(curve("run")) == 3
    assert run("--resume", "train.seed=1000") == 2 and "train.seed is 1000, but" in capsys.readouterr().err
    assert case.evaluate.main(["run", "train.seed=1000"]) == 2


@pytest.mark.parametrize("round_", [pytest.param("2.0", marks=pytest.mark.one_benchmark), "3.0"])
def test_staged_data_give_the_same_curve(case, run, finished_run, round_):
    """The clock starts before staging until round 2.0; what was staged is gone after the run."""
    run("output_dir=staged", "train.epochs=2", f"submission.round='{round_}'", *STAGED, *case.staged)
    assert curve("staged") == curve(finished_run)[:2]
    found = re.findall(r'"key": "(\w+)"', Path("staged/result_0.txt").read_text())
    assert (found.index("run_start") < found.index("staging_start")) == (round_ == "2.0")
    assert not list(Path("node").rglob(case.files))


@pytest.mark.one_benchmark
def test_a_seed_is_drawn_and_logged_once(run):
    for folder in ("one", "other"):
        run(f"output_dir={folder}", "train.seed=null", "train.epochs=1")
    one, other = (
        re.findall(r'"key": "seed", "value": (\d+)', Path(folder, "result_0.txt").read_text())
        for folder in ("one", "other")
    )
    assert len(one) == len(other) == 1 and one != other


@pytest.mark.one_benchmark
def test_a_mini_run_names_data_of_other_size_and_what_a_classical_method_reaches(case, run, capsys):
    reference = MINIS[case.name][0]
    assert run(f"variant={reference.variant}", "train.epochs=1") == 4
    out, line = capsys.readouterr().out, f"a classical method reaches {reference.baseline}: see {case.name}/README.md"
    assert (line in out) == (reference.baseline is not None)
    assert f"is not the {reference.variant} problem: 24 train_samples instead of " in out and "SET05" in out


# -- what can be wrong ---------------------------------------------------------------------------------------


def cut(case, folder):
    path = sorted((folder / "train").glob(case.files))[0]
    path.write_bytes(path.read_bytes()[:1000])
    return path.name


def missing(case, folder):
    sorted((folder / "validation").glob(case.files))[0].unlink()
    return "validation"


def not_a_folder(_, folder):
    shutil.rmtree(folder / "validation")
    return "validation is not a"


@pytest.mark.parametrize("damage", [cut, missing, not_a_folder])
def test_damaged_data_have_a_clear_error(case, run, data, tmp_path, capsys, damage):
    name = damage(case, shutil.copytree(data, tmp_path / "copy"))
    write_config(case, tmp_path / "copy", tmp_path)
    assert run("data.eval_samples=7", "data.train_samples=24") == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ") and name in error and "Traceback" not in error
    log = Path("run/result_0.txt")
    assert not log.exists() or '"status": "aborted"' in log.read_text()


WRONG = (
    ("optim.momntum=0.5", {2}, "did you mean optim.momentum"),
    ("optim.lr=3", {2}, "override 'optim.lr=3': unknown key optim.lr; did you mean schedule.base_lr?"),
    ("schedule.base_lr=-1", {2}, "override 'schedule.base_lr=-1': schedule: base_lr is -1"),
    ("train.accumulation=6", {2}, "accumulation is 6, more parts than the 5 samples of a step"),
    ("train.target=-3", {2}, "override 'train.target=-3': train: target is -3"),
    ("data.train_samples=25", {1}, "the configuration asks for 25"),
    ("submission.org=''", {1}, "submission.org is empty"),
    ("data.data_dir=small.yaml", {1}, "data.data_dir"),
    ("data.data_dir=missing", {1}, "missing/train is not a folder: data.data_dir must contain"),
    ("--resume", {1}, "no checkpoint to resume from"),
)


def test_wrong_values_have_a_clear_error(case, run, capsys):
    for argument, codes, message in (*WRONG, *((argument, {1, 2}, message) for argument, message in case.wrong)):
        assert run(argument) in codes
        error = capsys.readouterr().err
        assert error.startswith("error: ") and message in error
        assert not Path("run").exists()


def test_without_a_configuration_only_that_is_missing(case, capsys):
    with pytest.raises(SystemExit):
        case.train.main([])
    error = capsys.readouterr().err
    assert "no configuration is named" in error and "override" not in error.splitlines()[-1]


@pytest.mark.one_benchmark
def test_a_full_disk_leaves_the_earlier_checkpoint(run, capsys, monkeypatch):
    second_time_full = [DEFAULT, OSError(28, "No space left on device"), *[DEFAULT] * 9]
    monkeypatch.setattr(torch, "save", Mock(wraps=torch.save, side_effect=second_time_full))
    assert run() == 1
    assert re.search(r"No space left.*epoch-0001-step-0000000\.pt is still there", capsys.readouterr().err)
    assert [path.name for path in Path("run/checkpoints").iterdir()] == ["epoch-0001-step-0000000.pt"]
    assert '"status": "aborted"' in Path("run/result_0.txt").read_text()
    assert read_ending(Path("run")).text.startswith(
        "failed: run/checkpoints/epoch-0002-step-0000000.pt: the checkpoint"
    )
    assert run("--resume") == 4 and len(curve("run")) == 4
    assert read_ending(Path("run")) == Ending("target_not_met", epochs=4)


def test_the_printed_configuration_is_the_same_configuration(case, config, run, capsys, tmp_path):
    keys = []
    for options in ((), ("--all",)):
        assert run("train.epochs=7", "--print-config", *options) == 0
        printed = capsys.readouterr().out
        (tmp_path / "printed.yaml").write_text(printed)
        printed_config = load(case.train.Config, tmp_path / "printed.yaml")
        assert printed_config == load(case.train.Config, Path(config), ["train.epochs=7"])
        keys.append(len(printed.splitlines()))
    assert "output_dir: " in printed and keys[0] < keys[1] // 2


# -- the GPU smoke test --------------------------------------------------------------------------------------

on_a_gpu = pytest.mark.skipif(not torch.accelerator.is_available(), reason="no accelerator here")


@on_a_gpu
def test_an_accelerator_has_the_curve_of_the_cpu(run):
    run("output_dir=cpu", "dist.device=cpu")
    for dtype, tolerance in (("fp32", 2e-3), ("bf16", 0.1), ("fp16", 0.1)):
        run(f"output_dir={dtype}", f"precision.dtype={dtype}")
        assert flat(curve(dtype)) == pytest.approx(flat(curve("cpu")), rel=tolerance, abs=0.01)


@on_a_gpu
def test_a_run_resumed_on_an_accelerator_has_the_same_curve(run):
    run("output_dir=whole")
    run("output_dir=parts", "train.epochs=2")
    run("output_dir=parts", "train.epochs=4", "--resume")
    assert flat(curve("parts")) == pytest.approx(flat(curve("whole")), rel=1e-3, abs=0.01)


# -- the full size -------------------------------------------------------------------------------------------

GIB: Final = 2**20
"""In the unit of ru_maxrss, 1 KiB."""


@pytest.mark.exhaustive
def test_the_closed_configuration_fails_only_what_it_must(case, empty_folder):
    """One step of the full-size network, in less memory than a laptop has."""
    assert case.synthesize.main(["data", "--preset", "full-size", *case.full.split()]) == 0
    few = "data.data_dir=data data.train_samples=2 data.eval_samples=1 train.epochs=1 submission.division=open".split()
    words = ("-m", f"{case.name}.train", ROOT / case.name / "config.yaml", *few, *case.closed, "output_dir=run")
    done = run_process(sys.executable, *words, variables={"OMP_NUM_THREADS": str(usable_cores())})
    assert done.returncode == 4 and "NOT reached after 1 epoch" in done.stdout, done.stderr
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 8 * GIB  # of the largest child so far
    report = compliance.check_logs(["run/result_0.txt"], division="closed")
    errors = {(found.rule, found.key) for found in report.findings if found.severity == "error"}
    assert errors == {
        ("QUA01", case.quality),
        ("QUA03", "run_stop"),
        ("SET05", "train_samples"),
        ("SET05", "eval_samples"),
        ("SET11", "submission.division"),
        ("SET11", "data.train_samples"),
        ("SET11", "data.eval_samples"),
    }


@pytest.mark.one_benchmark
def test_one_batch_is_learned_by_heart_or_not(case, run, capsys):
    for words, status, text in (
        (("100", *case.learned), 0, "network, loss, gradients and optimizer work together"),
        (("3", "schedule.base_lr=1e-9"), 4, "expected at most 10%"),
        (("9", "--resume"), 2, "makes no run"),
    ):
        try:
            assert run("--overfit-one-batch", *words) == status
        except SystemExit as ended:  # of argparse
            assert ended.code == status
        out, err = capsys.readouterr()
        assert text in out + err and not Path("run").exists()


@pytest.mark.one_benchmark
@pytest.mark.parametrize("wrong", ["--nosuch", "train.epochs=x"])
def test_the_report_of_torchrun_points_to_the_error_of_wrong_use(case, tmp_path, monkeypatch, wrong):
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    with pytest.raises(SystemExit):
        answer_at_once(case.name, ["mini", wrong])
    assert "the error is in the output above (exit status 2)" in (tmp_path / "error.json").read_text()
