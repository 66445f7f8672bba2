"""A user's own data are a variant of their own: trained until the user's target, and never a result."""

from pathlib import Path

from common.record import read_value
from compliance.check import main as check
from tests.case import bind_command

TARGET = "train.target=0.001"


def test_own_data_are_trained_until_the_target_that_the_user_sets(case, data, config, run, capsys):
    assert run("variant=own") == 2
    key = case.train.BENCHMARK.reference.target.key
    message = f"variant is own, for data of your own, which have no target: set train.target to the {key}"
    assert message in capsys.readouterr().err
    assert run("variant=own", TARGET, "submission.division=closed") == 2
    assert 'variant is "own"' in capsys.readouterr().err
    assert bind_command(case.name, "measure").main([config, "variant=own", TARGET]) == 1
    assert "there is no recipe for such data; measure with --data DIR" in capsys.readouterr().err
    assert not Path("run").exists() and not Path("data").exists()

    status = run("variant=own", TARGET, "train.epochs=1")
    shown = capsys.readouterr().out
    assert status in (0, 4) and "0.001" in shown and "evaluate it:" in shown
    assert "compliance.check" not in shown and "submission" not in shown
    assert read_value(Path("run/result_0.txt"), "dataset_variant") == "own"
    for options in ([], ["--allow-mini"]):
        assert check([*options, "run/result_0.txt"]) == 1
        checked = capsys.readouterr().out
        assert "own data" in checked and "not an MLPerf result" in checked and "mini problem," not in checked
    assert case.evaluate.main(["run", f"data.data_dir={data}"]) == (1 if status else 0)
    assert "0.001" in capsys.readouterr().out
