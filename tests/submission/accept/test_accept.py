"""`mlperf-hpc accept`: baselines of several jobs, refusals, verdicts and what is written of them."""

import hashlib
import json
import os
import tarfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pytest

from common.file_kind import find_kind
from submission.accept import baseline as baseline_module
from submission.accept.__main__ import main
from submission.runs.processes import Attempt
from tests.measurement import STEPS

DAY = datetime(2026, 1, 2, tzinfo=UTC)


def write_job(folder, hours, *rates, **fields):
    """Write measurements of a job that began so many hours after DAY; return their files."""
    files = []
    for number, rate in enumerate(rates):
        files.append(folder / f"run_{number}" / "fom.json")
        replace(STEPS, samples_per_s=rate, **fields).write_file(files[-1])
        begin = (DAY + timedelta(hours=hours)).timestamp() + 60 * number
        os.utime(files[-1], (begin, begin))
    return list(map(str, files))


@pytest.fixture
def accept(call):
    """Call the command with these words."""
    return partial(call, main)


@pytest.fixture
def baseline(tmp_path, accept):
    """Return the file of a complete baseline."""
    path = tmp_path / "base.json"
    for hours in range(3):
        job = write_job(tmp_path / f"job_{hours}", hours, 100.0 + hours / 10, 101.0, 99.5)
        accept("--record", path, "--fom", *job)
    return path


def test_recording_a_baseline(tmp_path, accept):
    path, job = tmp_path / "base.json", write_job(tmp_path / "a", 0, 100.0, 101.0)
    said = accept("--record", path, "--fom", *job).out
    assert "1 of 3 jobs, not complete; the next job from 2026-01-02 01:00 UTC on" in said
    assert "--provisional" in accept(path, "--fom", *job, status=2).err
    assert "PROVISIONAL" in accept(path, "--provisional", "--fom", *job).out
    soon, single = write_job(tmp_path / "b", 0.9, 100.0, 101.0), write_job(tmp_path / "c", 5, 100.0)
    assert "less than an hour apart" in accept("--record", path, "--fom", *soon, status=2).err
    assert "no spread" in accept("--record", path, "--fom", *single, status=2).err
    content = json.loads(path.read_text())
    (job,) = content["series"][0]["jobs"]
    assert (
        job["samples_per_s"] == [100.0, 101.0]
        and job["environment"] == {"nodes": "1", "torch": STEPS.torch, "device": "cpu"}  # not of this machine
    )


@pytest.mark.parametrize(
    ("rates", "status", "word"),
    [
        ((100.0, 100.5, 99.9), 0, "PASS"),
        ((90.0, 90.5, 89.9), 1, "FAIL"),
        ((97.0, 97.5, 96.9), 0, "PASS"),
        ((80.0, 100.0, 125.0), 3, "UNDECIDED"),
    ],
)
def test_verdict(baseline, tmp_path, accept, rates, status, word):
    said = accept(baseline, "--fom", *write_job(tmp_path / "now", 9, *rates), status=status)
    assert said.out.rstrip().endswith(word)


def test_files_of_a_verdict(baseline, tmp_path, accept):
    now = write_job(tmp_path / "now", 9, 90.0, 90.5, 89.9)
    (tmp_path / "now/run_0/output").write_text("log")
    names = {"json": "v.json", "junit": "j.xml", "archive": "a.tar.gz", "history": "h.jsonl"}
    options = [word for name, file in names.items() for word in (f"--{name}", tmp_path / file)]
    accept(baseline, "--fom", *now, *options, status=1)
    (case,) = ElementTree.parse(tmp_path / "j.xml").getroot()
    assert "slower" in case.find("failure").get("message")
    verdict = json.loads((tmp_path / "v.json").read_text())
    assert "a verdict of" in find_kind((tmp_path / "v.json").read_bytes()).name
    assert verdict["verdict"] == "FAIL" and verdict["workloads"][0]["comparison"]["ratio"] == pytest.approx(
        0.9, abs=0.01
    )
    with tarfile.open(tmp_path / "a.tar.gz") as archive:
        contents = {name.removeprefix("a/"): archive.extractfile(name).read() for name in archive.getnames()}
    digests = json.loads(contents.pop("manifest.json"))["sha256"]
    assert digests == {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    assert {"verdict.json", "baseline.json", "system.json", "job_0/run_2/fom.json", "job_0/run_0/output"} <= set(
        digests
    )
    accept(baseline, "--fom", *now, "--history", tmp_path / "h.jsonl", status=1)
    assert len((tmp_path / "h.jsonl").read_text().splitlines()) == 2
    for name in ("json", "junit", "archive"):
        said = accept(baseline, "--fom", *now, f"--{name}", tmp_path / names[name], status=2)
        assert "already exists" in said.err


def test_outputs_are_checked_before_measuring(baseline, tmp_path, monkeypatch, accept):
    now = write_job(tmp_path / "now", 9, 90.0, 90.5)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "torn").write_text('{"kind": "acceptance"}\n{"kind": "acc')
    monkeypatch.chdir(tmp_path)
    judge = [baseline, "--fom", *now]
    for options, words in (
        (["--history", baseline], "no verdict of this command"),
        (["--history", now[0]], "no verdict of this command"),
        (["--history", "a", "--json", "./a"], "--json and --history are both"),
        (["--json", "link"], "is a link"),
        (["--junit", "nowhere/a.xml"], "there is no folder"),
        (["--archive", "/proc/a.tar.gz"], "/proc/a.tar.gz"),
    ):
        assert words in accept(*judge, *options, status=2).err
    accept(*judge, "--history", "torn", status=1)
    assert len((tmp_path / "torn").read_text().splitlines()) == 3

    def fail(*arguments):
        raise OSError(28, "No space left on device", "v.json")

    monkeypatch.setattr("submission.accept.__main__.write_whole_file", fail)
    said = accept(*judge, "--json", "v.json", "--archive", "a.tar.gz", status=2)
    assert "--json: v.json: No space" in said.err and (tmp_path / "a.tar.gz").exists()
    accept("--record", "link", "--fom", *now, status=2)


def test_a_measurement_counts_once(baseline, tmp_path, accept):
    (job,) = write_job(tmp_path / "now", 9, 100.0)
    (tmp_path / "copy.json").write_bytes((tmp_path / "now/run_0/fom.json").read_bytes())
    (tmp_path / "link.json").symlink_to(job)
    for again in ("copy.json", "link.json"):
        said = accept(baseline, "--fom", job, "--fom", tmp_path / again, status=2)
        assert "the same measurement" in said.err


def test_what_differs_is_a_warning(baseline, tmp_path, accept):
    jobs = [write_job(tmp_path / "a", 9, 100.0, 100.1), write_job(tmp_path / "b", 11, 100.2, 100.3)]
    replace(STEPS, samples_per_s=100.1, device="cuda").write_file(tmp_path / "a/run_1/fom.json")
    os.utime(jobs[0][1], (0, os.stat(jobs[0][0]).st_mtime))
    out = accept(baseline, "--fom", *jobs[0], "--fom", *jobs[1]).out
    assert "device is cpu or cpu and cuda, in the baseline cpu" in " ".join(out.split())


def test_an_incomplete_baseline_is_completed_first(tmp_path, accept):
    accept("--record", tmp_path / "base.json", "--fom", *write_job(tmp_path / "a", 0, 100.0, 120.0))
    now = write_job(tmp_path / "now", 9, 80.0, 100.0, 125.0)
    out = " ".join(accept(tmp_path / "base.json", "--provisional", "--fom", *now, status=3).out.split())
    assert "complete the baseline first, which has 1 of 3 jobs" in out and " – " in out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: content.update(kind="acceptance"), "kind"),
        (lambda content: content.update(series=[], system_name="n64"), "this is a system description, not a baseline"),
        (lambda content: content["series"].append(content["series"][0]), "one twice"),
        (lambda content: content["series"][0]["jobs"][0].update(begin="2126-01-01T00:00:00Z"), "in the future"),
        (lambda content: content["series"][0]["jobs"][0].update(samples_per_s=[1e-9, 1.0]), "from 1e-06"),
        (lambda content: content["series"][0]["settings"].update(options=["-o", "/tmp/a"]), "--steps N"),
        (lambda content: content["series"][0]["settings"].update(config="--help"), "config"),
        (lambda content: content["series"][0]["settings"].update(overrides=["--data"]), "section.key=value"),
        (lambda content: content["series"][0]["settings"].update(ranks=0), "ranks"),
    ],
)
def test_a_baseline_that_record_would_not_write_is_refused(baseline, change, words, accept):
    content = json.loads(baseline.read_text())
    content["series"][0]["settings"] = {"benchmark": "cosmoflow", "config": "mini"}
    change(content)
    baseline.write_text(json.dumps(content))
    assert words in accept(baseline, status=2).err


@pytest.mark.parametrize(
    "fields", [{"dtype": "bf16"}, {"batch": 32}, {"units": 4}, {"network": "full"}, {"flop_per_step": 9e9}]
)
def test_other_work_is_refused(baseline, tmp_path, accept, fields):
    said = accept(baseline, "--fom", *write_job(tmp_path / "now", 9, 100.0, **fields), status=2)
    assert f"{next(iter(fields))} is " in said.err


def test_all_of_a_baseline_is_judged(baseline, tmp_path, accept):
    for hours in (0, 2, 4):
        job = write_job(tmp_path / f"oc20_{hours}", hours, 50.0, 50.1, benchmark="oc20")
        accept("--record", baseline, "--fom", *job)
    now = write_job(tmp_path / "now", 9, 100.0, 100.5)
    assert "no measurement of oc20" in accept(baseline, "--fom", *now, status=2).err
    slow = write_job(tmp_path / "oc20", 9, 44.0, 44.1, benchmark="oc20")
    output = accept(baseline, "--fom", *now, *slow, status=1).out
    assert (
        "oc20 mini, fp32, batch 16, units 2: FAIL" in output
        and "cosmoflow mini, fp32, batch 16, units 2: PASS" in output
    )
    accept(baseline, "--fom", *now, *slow, "--fom", *now, *slow, status=2)  # the same job is no second job


def test_measuring(empty_folder, tmp_path, monkeypatch, accept):
    """What is measured is what the baseline names, as often as -n says."""
    made = []

    def execute(runs, runner, describe_result):
        for run in runs:
            run.write_record()
            replace(STEPS, samples_per_s=100.0 + len(made) % 2).write_file(run.result_file)
            made.append(run)
        return []

    monkeypatch.setattr(baseline_module, "execute_plan", execute)
    accept("--record", "base.json", "cosmoflow", "mini", "data.workers=1", "--steps", "7", "-n", "2")
    assert "an hour or more apart" in accept("--record", "base.json", status=2).err and len(made) == 2
    accept("base.json", "--provisional", "-n", "4", "-o", "now")
    words = ["cosmoflow", "measure", "mini", "data.workers=1", "-o", "now/cosmoflow-0/run_3/fom.json", "--steps", "7"]
    assert len(made) == 6 and made[-1].words() == words
    environment = json.loads((tmp_path / "base.json").read_text())["series"][0]["jobs"][0]["environment"]
    assert "host_processor_model_name" in environment
    said = accept("base.json", "--provisional", "-n", "4", "-o", "now", status=2)
    assert "now has all measurements, from 20" in said.err
    for status in (1, 2):
        failed = [Attempt(made[0], status, 3, False, tmp_path, True)]
        monkeypatch.setattr(baseline_module, "execute_plan", lambda runs, runner, describe, failed=failed: failed)
        out, error = accept("base.json", "--provisional", "-n", "5", "-o", "now", status=status)
        assert "4 of 5 measurements are reused, from 20" in out and "1 measurement failed" in error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["base.json", "cosmoflow"], "--record"),
        (["/", "mini"], "mlperf-hpc accept --record base.json"),
        (["/"], "is a folder, not a file"),
        (["base.json", "--steps", "3"], "--record"),
        (["base.json"], "begins a baseline"),
        (["--record"], "there is no BASELINE.json: `mlperf-hpc accept --record base.json cosmoflow mini` begins one"),
        (["--record", "base.json"], "name what to measure"),
        (["--record", "cosmoflow", "mini"], "comes first, before cosmoflow mini: `mlperf-hpc accept --record base"),
        (["--fom", "/"], "--fom takes all words"),
        (["--record", "base.json", "alexnet"], "not a benchmark"),
        (["--record", "base.json", "cosmoflow", "mini", "other"], "section.key=value"),
        (["--record", "base.json", "cosmoflow", "-n", "1"], "no spread"),
    ],
)
def test_wrong_use(arguments, words, empty_folder, tmp_path, accept):
    assert words in accept(*arguments, status=2).err and not list(tmp_path.iterdir())


def test_a_baseline_and_measurements_in_wrong_places_get_the_right_call(baseline, tmp_path, accept):
    now = write_job(tmp_path / "now", 9, 100.0, 100.5)
    right = f"`mlperf-hpc accept {baseline} --fom {now[0]} {now[1]}`"
    for words in (["--fom", *now, baseline], [baseline, *now], [*now, baseline]):
        assert right in accept(*words, status=2).err
    for words in (now, now[:1]):
        error = accept(*words, status=2).err
        assert "measurements follow --fom" in error and "accept --record BASELINE.json --fom" in error
    assert f"accept --record {tmp_path}/new.json --fom" in accept("--record", tmp_path / "new.json", *now, status=2).err


def test_files_of_several_jobs_are_no_job(tmp_path, accept):
    files = [*write_job(tmp_path / "a", 0, 100.0, 101.0), *write_job(tmp_path / "b", 4, 99.0, 100.5)]
    assert "are they of several jobs?" in accept("--record", tmp_path / "base.json", "--fom", *files).err
    error = accept(tmp_path / "base.json", "--fom", *files, status=2).err
    assert "a call of its own" in error and f"accept --record {tmp_path}/base.json --fom" in error


@pytest.mark.parametrize("content", ["", "[]", '{"series": []}', '{"series": [{"workload": 1}]}', "\x00"])
def test_damaged_baselines_are_refused(content, tmp_path, accept):
    (tmp_path / "base.json").write_text(content)
    assert str(tmp_path / "base.json") in accept(tmp_path / "base.json", status=2).err


def test_a_machine_that_is_fast_and_wrong_is_warned_of(tmp_path, accept):
    path = tmp_path / "base.json"
    for hours in range(3):
        job = write_job(tmp_path / f"job_{hours}", hours, 100.0, 101.0, output_errors=(0.001, 0.002, 0.004))
        accept("--record", path, "--fom", *job)
    for name, errors, word in (
        ("same", {"output_errors": (0.0005, 0.002, 0.009)}, ""),
        ("worse", {"output_errors": (0.003, 0.005, 0.006)}, "outputs are 0.50% from float32's"),
        ("more", {"loss_errors": (0.1,)}, "the baseline does not say how far losses are from float32's"),
    ):
        out = accept(path, "--fom", *write_job(tmp_path / name, 9, 100.0, 101.0, **errors)).out
        said = " ".join(out.split())
        assert word in said and ("float32" in said) == bool(word)


def test_the_former_fidelity_is_ignored(tmp_path, accept):
    files = write_job(tmp_path / "a", 0, 100.0, 101.0)
    for file in map(Path, files):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"loss": 1.0, "loss_fp32": 1.1, "fidelity": 0.09}))
    accept("--record", tmp_path / "base.json", "--fom", *files)
