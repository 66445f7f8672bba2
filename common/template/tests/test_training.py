"""The mini problem from data to a checked log, in a new folder: whatever you change, this must pass."""

from common.training import weights
from compliance import check

from newbenchmark import baselines, train
from newbenchmark.__main__ import main as run_command


def test_the_mini_problem_meets_its_target_and_its_log_is_valid(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert train.main(["mini", "output_dir=run", "train.seed=1"]) == 0
    assert check.main(["--allow-mini", "run/result_0.txt"]) == 0
    assert run_command(["evaluate", "run"]) == run_command(["predict", "run", "-o", "predictions.npz"]) == 0
    assert weights.main(["run", "weights.safetensors"]) == 0
    baselines.main([])
    assert "linear model" in capsys.readouterr().out
