"""`mlperf-hpc accept`: baselines of several jobs, refusals, verdicts and what is written of them."""

import hashlib
import json
import os
import tarfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest

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
def baseline(tmp_path):
    """Return the file of a complete baseline."""
    path = tmp_path / "base.json"
    for hours in range(3):
        job = write_job(tmp_path / f"job_{hours}", hours, 100.0 + hours / 10, 101.0, 99.5)
        assert main(["--record", str(path), "--fom", *job]) == 0
    return path


def test_recording_a_baseline(tmp_path, capsys):
    path, job = tmp_path / "base.json", write_job(tmp_path / "a", 0, 100.0, 101.0)
    assert main(["--record", str(path), "--fom", *job]) == 0
    assert "1 of 3 jobs, not complete; the next job from 2026-01-02 01:00 UTC on" in capsys.readouterr().out
    assert main([str(path), "--fom", *job]) == 2
    assert "--provisional" in capsys.readouterr().err
    assert main([str(path), "--provisional", "--fom", *job]) in (0, 3)
    assert "PROVISIONAL" in capsys.readouterr().out
    assert main(["--record", str(path), "--fom", *write_job(tmp_path / "b", 0.9, 100.0, 101.0)]) == 2
    assert "less than an hour apart" in capsys.readouterr().err
    assert main(["--record", str(path), "--fom", *write_job(tmp_path / "c", 5, 100.0)]) == 2
    assert "no spread" in capsys.readouterr().err
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
def test_verdict(baseline, tmp_path, capsys, rates, status, word):
    assert main([str(baseline), "--fom", *write_job(tmp_path / "now", 9, *rates)]) == status
    assert capsys.readouterr().out.rstrip().endswith(word)


def test_files_of_a_verdict(baseline, tmp_path, capsys):
    now = write_job(tmp_path / "now", 9, 90.0, 90.5, 89.9)
    (tmp_path / "now/run_0/output").write_text("log")
    names = {"json": "v.json", "junit": "j.xml", "archive": "a.tar.gz", "history": "h.jsonl"}
    options = [word for name, file in names.items() for word in (f"--{name}", str(tmp_path / file))]
    assert main([str(baseline), "--fom", *now, *options]) == 1
    (case,) = ElementTree.parse(tmp_path / "j.xml").getroot()
    assert "slower" in case.find("failure").get("message")
    verdict = json.loads((tmp_path / "v.json").read_text())
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
    assert main([str(baseline), "--fom", *now, "--history", str(tmp_path / "h.jsonl")]) == 1
    assert len((tmp_path / "h.jsonl").read_text().splitlines()) == 2
    capsys.readouterr()
    for name in ("json", "junit", "archive"):
        assert main([str(baseline), "--fom", *now, f"--{name}", str(tmp_path / names[name])]) == 2
        assert "already exists" in capsys.readouterr().err


def test_outputs_are_checked_before_measuring(baseline, tmp_path, monkeypatch, capsys):
    now = write_job(tmp_path / "now", 9, 90.0, 90.5)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "torn").write_text('{"kind": "acceptance"}\n{"kind": "acc')
    monkeypatch.chdir(tmp_path)
    judge = [str(baseline), "--fom", *now]
    for options, words in (
        (["--history", str(baseline)], "no verdict of this command"),
        (["--history", now[0]], "no verdict of this command"),
        (["--history", "a", "--json", "./a"], "--json and --history are both"),
        (["--json", "link"], "is a link"),
        (["--junit", "nowhere/a.xml"], "there is no folder"),
        (["--archive", "/proc/a.tar.gz"], "/proc/a.tar.gz"),
    ):
        assert main([*judge, *options]) == 2
        assert words in capsys.readouterr().err
    assert main([*judge, "--history", "torn"]) == 1
    assert len((tmp_path / "torn").read_text().splitlines()) == 3

    def fail(*arguments):
        raise OSError(28, "No space left on device", "v.json")

    monkeypatch.setattr("submission.accept.__main__.write_whole_file", fail)
    assert main([*judge, "--json", "v.json", "--archive", "a.tar.gz"]) == 2
    assert "--json: v.json: No space" in capsys.readouterr().err and (tmp_path / "a.tar.gz").exists()
    assert main(["--record", "link", "--fom", *now]) == 2


def test_a_measurement_counts_once(baseline, tmp_path, capsys):
    (job,) = write_job(tmp_path / "now", 9, 100.0)
    (tmp_path / "copy.json").write_bytes((tmp_path / "now/run_0/fom.json").read_bytes())
    (tmp_path / "link.json").symlink_to(job)
    for again in ("copy.json", "link.json"):
        assert main([str(baseline), "--fom", job, "--fom", str(tmp_path / again)]) == 2
        assert "the same measurement" in capsys.readouterr().err


def test_what_differs_is_a_warning(baseline, tmp_path, capsys):
    jobs = [write_job(tmp_path / "a", 9, 100.0, 100.1), write_job(tmp_path / "b", 11, 100.2, 100.3)]
    replace(STEPS, samples_per_s=100.1, device="cuda").write_file(tmp_path / "a/run_1/fom.json")
    os.utime(jobs[0][1], (0, os.stat(jobs[0][0]).st_mtime))
    assert main([str(baseline), "--fom", *jobs[0], "--fom", *jobs[1]]) == 0
    assert "device is cpu or cpu and cuda, in the baseline cpu" in " ".join(capsys.readouterr().out.split())


def test_an_incomplete_baseline_is_completed_first(tmp_path, capsys):
    main(["--record", str(tmp_path / "base.json"), "--fom", *write_job(tmp_path / "a", 0, 100.0, 120.0)])
    capsys.readouterr()
    now = write_job(tmp_path / "now", 9, 80.0, 100.0, 125.0)
    assert main([str(tmp_path / "base.json"), "--provisional", "--fom", *now]) == 3
    out = " ".join(capsys.readouterr().out.split())
    assert "complete the baseline first, which has 1 of 3 jobs" in out and " – " in out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: content.update(kind="acceptance"), "kind"),
        (lambda content: content["series"].append(content["series"][0]), "one twice"),
        (lambda content: content["series"][0]["jobs"][0].update(begin="2126-01-01T00:00:00Z"), "in the future"),
        (lambda content: content["series"][0]["jobs"][0].update(samples_per_s=[1e-9, 1.0]), "from 1e-06"),
        (lambda content: content["series"][0]["settings"].update(options=["-o", "/tmp/a"]), "--steps N"),
        (lambda content: content["series"][0]["settings"].update(config="--help"), "config"),
        (lambda content: content["series"][0]["settings"].update(overrides=["--data"]), "section.key=value"),
        (lambda content: content["series"][0]["settings"].update(ranks=0), "ranks"),
    ],
)
def test_a_baseline_that_record_would_not_write_is_refused(baseline, change, words, capsys):
    content = json.loads(baseline.read_text())
    content["series"][0]["settings"] = {"benchmark": "cosmoflow", "config": "mini"}
    change(content)
    baseline.write_text(json.dumps(content))
    assert main([str(baseline)]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "fields", [{"dtype": "bf16"}, {"batch": 32}, {"units": 4}, {"network": "full"}, {"flop_per_step": 9e9}]
)
def test_other_work_is_refused(baseline, tmp_path, capsys, fields):
    assert main([str(baseline), "--fom", *write_job(tmp_path / "now", 9, 100.0, **fields)]) == 2
    assert f"{next(iter(fields))} is " in capsys.readouterr().err


def test_all_of_a_baseline_is_judged(baseline, tmp_path, capsys):
    jobs = [write_job(tmp_path / f"oc20_{hours}", hours, 50.0, 50.1, benchmark="oc20") for hours in (0, 2, 4)]
    for job in jobs:
        assert main(["--record", str(baseline), "--fom", *job]) == 0
    now = write_job(tmp_path / "now", 9, 100.0, 100.5)
    assert main([str(baseline), "--fom", *now]) == 2
    assert "no measurement of oc20" in capsys.readouterr().err
    slow = write_job(tmp_path / "oc20", 9, 44.0, 44.1, benchmark="oc20")
    assert main([str(baseline), "--fom", *now, *slow]) == 1
    output = capsys.readouterr().out
    assert (
        "oc20 mini, fp32, batch 16, units 2: FAIL" in output
        and "cosmoflow mini, fp32, batch 16, units 2: PASS" in output
    )
    assert main([str(baseline), "--fom", *now, *slow, "--fom", *now, *slow]) == 2  # the same job is no second job


def test_measuring(empty_folder, tmp_path, monkeypatch, capsys):
    """What is measured is what the baseline names, as often as -n says."""
    made = []

    def execute(runs, runner, describe_result):
        for run in runs:
            run.write_record()
            replace(STEPS, samples_per_s=100.0 + len(made) % 2).write_file(run.result_file)
            made.append(run)
        return []

    monkeypatch.setattr(baseline_module, "execute_plan", execute)
    record = ["--record", "base.json", "cosmoflow", "mini", "data.workers=1", "--steps", "7", "-n", "2"]
    assert main(record) == 0
    assert main(["--record", "base.json"]) == 2
    assert "an hour or more apart" in capsys.readouterr().err and len(made) == 2
    assert main(["base.json", "--provisional", "-n", "4", "-o", "now"]) in (0, 3)
    words = ["cosmoflow", "measure", "mini", "data.workers=1", "-o", "now/cosmoflow-0/run_3/fom.json", "--steps", "7"]
    assert len(made) == 6 and made[-1].words() == words
    environment = json.loads((tmp_path / "base.json").read_text())["series"][0]["jobs"][0]["environment"]
    assert "host_processor_model_name" in environment
    assert main(["base.json", "--provisional", "-n", "4", "-o", "now"]) == 2
    assert "now has all measurements, from 20" in capsys.readouterr().err
    for status, expected in ((1, 1), (2, 2)):
        failed = [Attempt(made[0], status, 3, False, tmp_path, True)]
        monkeypatch.setattr(baseline_module, "execute_plan", lambda runs, runner, describe, failed=failed: failed)
        assert main(["base.json", "--provisional", "-n", "5", "-o", "now"]) == expected
        out, error = capsys.readouterr()
        assert "4 of 5 measurements are reused, from 20" in out and "1 measurement failed" in error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["base.json", "cosmoflow"], "--record"),
        (["base.json", "--steps", "3"], "--record"),
        (["base.json"], "begins a baseline"),
        (["--record", "base.json"], "name what to measure"),
        (["--record", "base.json", "alexnet"], "not a benchmark"),
        (["--record", "base.json", "cosmoflow", "mini", "other"], "section.key=value"),
        (["--record", "base.json", "cosmoflow", "-n", "1"], "no spread"),
    ],
)
def test_wrong_use(arguments, words, empty_folder, tmp_path, capsys):
    assert main(arguments) == 2
    assert words in capsys.readouterr().err and not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", ["", "[]", '{"series": []}', '{"series": [{"workload": 1}]}', "\x00"])
def test_damaged_baselines_are_refused(content, tmp_path, capsys):
    (tmp_path / "base.json").write_text(content)
    assert main([str(tmp_path / "base.json")]) == 2
    assert str(tmp_path / "base.json") in capsys.readouterr().err


def test_a_machine_that_is_fast_and_wrong_is_warned_of(tmp_path, capsys):
    path = tmp_path / "base.json"
    for hours in range(3):
        job = write_job(tmp_path / f"job_{hours}", hours, 100.0, 101.0, output_errors=(0.001, 0.002, 0.004))
        assert main(["--record", str(path), "--fom", *job]) == 0
    for name, errors, word in (
        ("same", {"output_errors": (0.0005, 0.002, 0.009)}, ""),
        ("worse", {"output_errors": (0.003, 0.005, 0.006)}, "outputs are 0.50% from float32's"),
        ("more", {"loss_errors": (0.1,)}, "the baseline does not say how far losses are from float32's"),
    ):
        capsys.readouterr()
        assert main([str(path), "--fom", *write_job(tmp_path / name, 9, 100.0, 101.0, **errors)]) in (0, 3)
        said = " ".join(capsys.readouterr().out.split())
        assert word in said and ("float32" in said) == bool(word)


def test_the_former_fidelity_is_ignored(tmp_path):
    files = write_job(tmp_path / "a", 0, 100.0, 101.0)
    for file in map(Path, files):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"loss": 1.0, "loss_fp32": 1.1, "fidelity": 0.09}))
    assert main(["--record", str(tmp_path / "base.json"), "--fom", *files]) == 0
