"""`mlperf-hpc accept`: baselines of several jobs, refusals, verdicts and what is written of them."""

import hashlib
import json
import os
import tarfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

import pytest

from submission.accept import baseline as baseline_module
from submission.accept.__main__ import main
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
        and job["environment"]["torch"] == STEPS.torch
        and "host_processor_model_name" in job["environment"]
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


def test_measuring(tmp_path, monkeypatch, capsys):
    """What is measured is what the baseline names, as often as -n says."""
    monkeypatch.chdir(tmp_path)
    made = []

    def execute(runs, runner, describe_result):
        for run in runs:
            run.write_record()
            replace(STEPS, samples_per_s=100.0 + len(made) % 2).write_file(run.result_file)
            made.append(run)
        return []

    monkeypatch.setattr(baseline_module, "execute_plan", execute)
    record = ["--record", "base.json", "cosmoflow", "mini", "data.workers=0", "--steps", "7", "-n", "2"]
    assert main(record) == 0
    assert main(["--record", "base.json"]) == 2
    assert "an hour or more apart" in capsys.readouterr().err and len(made) == 2
    assert main(["base.json", "--provisional", "-n", "4", "-o", "now"]) in (0, 3)
    words = ["cosmoflow.measure", "mini", "data.workers=0", "-o", "now/cosmoflow-0/run_3/fom.json", "--steps", "7"]
    assert len(made) == 6 and made[-1].words() == words
    monkeypatch.setattr(baseline_module, "execute_plan", lambda runs, runner, describe_result: runs[:1])
    assert main(["base.json", "--provisional"]) == 1
    assert "1 measurement failed" in capsys.readouterr().err


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
def test_wrong_use(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert words in capsys.readouterr().err and not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", ["", "[]", '{"series": []}', '{"series": [{"workload": 1}]}', "\x00"])
def test_damaged_baselines_are_refused(content, tmp_path, capsys):
    (tmp_path / "base.json").write_text(content)
    assert main([str(tmp_path / "base.json")]) == 2
    assert str(tmp_path / "base.json") in capsys.readouterr().err
