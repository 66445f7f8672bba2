"""The command for studies, with trainings of a tiny problem: it continues, repeats nothing, says what is missing."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from submission.study.__main__ import main
from tests.cosmoflow.case import CASE
from tests.problems import ROOT


@pytest.fixture
def case():
    return CASE


@pytest.fixture
def tiny(config, monkeypatch):
    """Return the options for a study of a tiny problem, with trainings of a second."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return f"--benchmark cosmoflow --config {config} --set train.epochs=1 -o out --threads=1".split()


def logs():
    return {str(path): path.read_bytes() for path in Path("out").rglob("result_0.txt")}


def test_a_study_grows_and_repeats_nothing(tiny, call):
    axes = ["--axis", "optim.momentum=0.8,0.9"]
    assert "small.yaml train.epochs=1 optim.momentum=0.8" in call(main, *tiny, *axes, "--dry-run").out
    assert not Path("out").exists()
    call(main, *tiny, "--axis", "optim.momentum=0.8")
    first = logs()
    assert list(first) == ["out/momentum-0.8/seed_1/result_0.txt"]
    call(main, *tiny, *axes)
    assert len(logs()) == 2 and first.items() <= logs().items()
    study = json.loads(Path("out/study.json").read_text())
    assert [run["values"] for run in study["runs"]] == [{"optim.momentum": m} for m in (0.8, 0.9)]
    assert all(run["quantities"]["quality"] > 0 and "cosmoflow.train" in run["command"] for run in study["runs"])
    rows = list(csv.DictReader(Path("out/study.csv").read_text().splitlines()))
    assert [row["run"] for row in rows] == [f"momentum-{m}/seed_1" for m in (0.8, 0.9)]
    assert "momentum" in Path("out/study.html").read_text() and list(Path("out").glob("curve-*.svg"))
    for mode in ([], ["--dry-run"], ["--emit", "plain"]):
        said = call(main, *tiny, *axes, "--set", "train.global_batch_size=2", *mode, status=1)
        assert "none before, train.global_batch_size=2 now" in said.err
    assert len(logs()) == 2
    command = study["runs"][0]["command"].replace("python", sys.executable, 1)
    assert "output_dir=again/out/momentum-0.8/seed_1" in command and study["cwd"] == str(Path.cwd())
    flop = study["runs"][0]["quantities"]["flop"]
    assert flop == study["runs"][1]["quantities"]["flop"] == round(flop)
    assert subprocess.run(["bash", "-c", command], check=False).returncode == 4  # it missed the target
    assert Path("again/out/momentum-0.8/seed_1/fom.json").exists()


@pytest.mark.exhaustive
def test_an_error_of_one_run_does_not_end_the_others(tiny, call):
    said = call(main, *tiny, "--axis", "data.train_samples=1000,20", status=1).out
    failed, finished = json.loads(Path("out/study.json").read_text())["runs"]
    assert "asks for 1,000" in failed["problem"] and not failed["quantities"] and not finished["problem"]
    assert failed["problem"] in said
    assert Path("out/train_samples-20/seed_1/ended.json").exists()

    assert not Path("out/train_samples-1000/attempts/seed_1-2").exists()
    call(main, *tiny, "--axis", "data.train_samples=1000", "--set", "train.global_batch_size=2", status=1)


@pytest.mark.parametrize("name", ["study.html", "study.json", "study.csv"])
def test_a_file_of_others_is_kept(name, empty_folder, tmp_path, call):
    Path(name).write_text("mine")
    for mode in ([], ["--dry-run"], ["--no-run"]):
        assert name in call(main, "frey", "-o", ".", *mode, status=1).err
    assert Path(name).read_text() == "mine" and len(list(tmp_path.iterdir())) == 1


@pytest.mark.exhaustive
def test_a_killed_study_continues(tiny):
    """SIGKILL takes the runs with it; the finished one is kept, the other begins again."""
    words = [*tiny, "--axis", "train.seed=1,2", "--axis", "optim.momentum=0.8", "--set", "train.epochs=3"]
    with subprocess.Popen([sys.executable, "-m", "submission.study", *words], env=os.environ) as study:
        while not list(Path("out").glob("*/seed_2/output")) and study.poll() is None:
            time.sleep(0.05)
        study.send_signal(signal.SIGKILL)
    before = Path("out/momentum-0.8/seed_1/result_0.txt").read_bytes()
    assert main(words) == 0
    assert Path("out/momentum-0.8/seed_1/result_0.txt").read_bytes() == before and len(logs()) == 2


def test_a_study_prints_its_jobs(empty_folder, tmp_path, call):
    words = "ai500-fig8 --emit slurm --ranks-per-node 4 --axis ranks=1,8 -o out"
    script = call(main, *words.split()).out
    assert "suite submission.study ai500-fig8 --axis=ranks=1,8 --no-run -o out" in script
    assert "#SBATCH --nodes=2" in script and script.count("cosmoflow measure mini") == 6
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    assert not list(tmp_path.iterdir())


WRONG = (
    (["--benchmark", "cosmoflow", "--axis", "ranks=1", "2"], "'2' is neither a preset"),
    (["--benchmark", "cosmoflow", "--axis", "ranks=1", "ranks=2", "ranks=3"], "several words of {a,b}"),
    (["frey", "--seeds", "3"], "--set train.seed=3"),
    ([], "or a --benchmark such as cosmoflow"),
    (["--benchmark", "cosmoflow"], "or an --axis such as ranks=1,2"),
    (["litmater"], "did you mean 'litmatter'"),
    (["--benchmark", "cosmoflow", "--axis", "ranks=1,2", "--axis", "ranks=3"], "given twice"),
    (["--benchmark", "cosmoflow", "--axis", "ranks=1000"], "can make no point"),
    (["frey", "--kind", "measurement"], "has its own kind"),
    (["frey", "--no-run", "-o", "nowhere"], "no such study"),
    (["frey", "--no-run", "--dry-run"], "expected one of them"),
    (["frey", "--set", "train.seed=2"], "give seeds"),
)


@pytest.mark.parametrize(("words", "message"), WRONG, ids=[message for _, message in WRONG])
def test_wrong_use_makes_nothing(words, message, empty_folder, tmp_path, call):
    assert message in call(main, *words, status=2).err
    assert not list(tmp_path.iterdir())
