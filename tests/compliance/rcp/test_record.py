"""The command line of the convergence points: show and record."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from common.benchmarks import ROOT
from compliance.benchmarks import REFERENCES
from compliance.rcp import record
from compliance.rcp.__main__ import main as rcp_main
from compliance.rcp.points import load_points
from compliance.rcp.table import read_table
from compliance.samples.log import SampleLog

OWN_TABLE = """\
benchmark: oc20
unit: epochs
points:
  - {name: a, batch_size: 8, epochs: [3, 4, 5, 5, 6], hyperparameters: {global_batch_size: 8}}
  - {name: b, batch_size: 16, epochs: [6, 7, 8], hyperparameters: {}, rounds: ["3.0"], variant: mini}
"""


def write_log(path: Path, epochs: float, *, status: str = "success", **values: Any) -> Path:
    """Write a log of a run that converged after `epochs`; a later evaluation does not count."""
    log = SampleLog("deepcam", epochs=2).meta("eval_accuracy", "epoch_num", epochs, -1)
    log.meta("run_stop", "status", status).add_evaluation(0.9, after="run_stop")
    for key, value in ({"global_batch_size": 16} | values).items():
        log.set(key, value)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(log.bytes())
    return path


def run(*arguments: object) -> int:
    return rcp_main([str(argument) for argument in arguments])


def test_record_makes_a_table_and_extends_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs, output = tmp_path / "runs", tmp_path / "new" / "table.yaml"
    for index, epochs in enumerate((7, 5, 6.25)):
        write_log(runs / "a" / f"result_{index}.txt", epochs, seed=index)
    write_log(runs / "result_9.txt", 7, seed=9, global_batch_size=32)
    (runs / "result_copy.txt").write_bytes((runs / "result_9.txt").read_bytes())
    (runs / "result_running.txt").write_bytes(SampleLog("deepcam").drop("run_stop").bytes())
    assert run("record", runs, "-o", output, "--name", "mine") == 0
    said = capsys.readouterr()
    assert "4 new runs, 0 already known" in said.out and "mine_16 (full): 3 of 10 runs" in said.out
    assert "a copy of result_9.txt" in said.err and "the run is not finished or was interrupted" in said.err
    first = read_table(output)
    assert [(entry.name, entry.epochs) for entry in first.entries] == [
        ("mine_16", (5, 6.25, 7)),
        ("mine_32", (7,)),
    ]
    settings = first.entries[0].hyperparameters
    assert settings.items() >= {"global_batch_size": 16, "opt_name": "LAMB", "opt_eps": 1e-6}.items()
    assert not settings.keys() & {"seed", "number_of_nodes", "submission_org", "eval_accuracy"}
    assert [recorded.file for recorded in first.entries[0].runs] == [f"a/result_{i}.txt" for i in range(3)]

    before = output.read_bytes()
    assert run("record", runs, "-o", output) == 0
    assert "0 new runs, 4 already known" in capsys.readouterr().out and output.read_bytes() == before

    (runs / "a" / "result_0.txt").unlink()
    write_log(runs / "result_running.txt", 8)
    write_log(runs / "result_failed.txt", 30, status="aborted")
    assert run("record", runs, "-o", output) == 0
    said = capsys.readouterr()
    assert "2 new runs, 3 already known" in said.out and "4 of 10 runs, 1 more did not converge" in said.out
    assert read_table(output).entries[0].epochs == (5, 6.25, 7, 8)
    assert [path.name for path in output.parent.iterdir()] == ["table.yaml"]


def test_record_refuses_what_does_not_fit_and_leaves_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "table.yaml"
    log = write_log(tmp_path / "one" / "result_0.txt", 5)
    for foreign in ("dear diary\n", OWN_TABLE, "\xff"):
        output.write_text(foreign, encoding="latin-1")
        options = ["--benchmark", "deepcam"] if foreign == OWN_TABLE else []
        assert run("record", log, "-o", output, *options) == 1
        assert output.read_text(encoding="latin-1") == foreign
        assert str(output) in capsys.readouterr().err
    output.unlink()
    assert run("record", log, "-o", output) == 0
    before = output.read_bytes()
    write_log(tmp_path / "one" / "result_1.txt", 5, opt_lr=0.1)
    assert run("record", tmp_path / "one", "-o", output) == 1
    assert "opt_lr 0.002 -> 0.1" in capsys.readouterr().err and output.read_bytes() == before


def test_record_refuses_to_mix_and_reports_unusable_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "table.yaml"
    assert run("record", tmp_path, "-o", output) == 1
    assert "no finished reference run" in capsys.readouterr().err
    write_log(tmp_path / "result_0.txt", 5, submission_benchmark="resnet")
    write_log(tmp_path / "result_1.txt", 5, global_batch_size="many")
    write_log(tmp_path / "result_2.txt", -1)
    (tmp_path / "result_3.txt").mkdir()
    assert run("record", tmp_path, "-o", output) == 1
    said = capsys.readouterr().err
    for reason in (
        "'resnet'",
        "'many'; a whole number",
        "no eval_accuracy with an epoch_num",
        "cannot be read",
    ):
        assert reason in said
    write_log(tmp_path / "result_4.txt", 5)
    write_log(tmp_path / "result_5.txt", 5, submission_benchmark="openfold", global_batch_size=128)
    assert run("record", tmp_path, "-o", output) == 1
    assert "runs of deepcam and openfold: choose one" in capsys.readouterr().err
    assert run("record", tmp_path, "-o", output, "--benchmark", "openfold") == 0
    assert "result_4.txt: a run of deepcam, not of openfold" in capsys.readouterr().err
    assert read_table(output).unit == "samples"
    assert run("record", tmp_path, "-o", output, "--benchmark", "deepcam") == 1


def test_record_does_not_add_to_published_points(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "rcps.yaml"
    output.write_text((ROOT / "deepcam" / "rcps.yaml").read_text())
    log = write_log(tmp_path / "result_0.txt", 5, global_batch_size=256)
    assert run("record", log, "-o", output) == 1
    assert "deepcam_ref_256" in capsys.readouterr().err


def test_a_table_that_another_process_changes_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "table.yaml"
    assert run("record", write_log(tmp_path / "result_0.txt", 5), "-o", output) == 0
    later = write_log(tmp_path / "result_1.txt", 6)

    def read_while_another_writes(folder: Path) -> list[record.LoggedRun]:
        output.write_text(OWN_TABLE.replace("oc20", "deepcam"))
        return [record.read_reference_run(folder, folder.name)]

    monkeypatch.setattr(record, "_read_runs", read_while_another_writes)
    assert run("record", later, "-o", output) == 1
    assert "changed in the meantime by another process" in capsys.readouterr().err
    assert output.read_text().startswith("benchmark: deepcam")


def test_show_prints_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show") == 0
    text = capsys.readouterr().out
    assert all(f"{name}, full, round 3.0" in text for name in REFERENCES if load_points(name, "3.0"))
    assert run("show", "openfold", "--round", "1.0.0", "--mode", "official") == 0
    assert "no reference points" in capsys.readouterr().out
    path = tmp_path / "own.yaml"
    path.write_text(OWN_TABLE)
    assert run("show", "--table", path, "--mode", "envelope") == 0
    text = capsys.readouterr().out
    assert "oc20, full" in text and "oc20, mini" in text and "kept official" not in text
    source, sink = os.pipe()  # as of `--table <(...)`, which can be read once
    os.write(sink, path.read_bytes())
    os.close(sink)
    assert run("show", "--table", f"/dev/fd/{source}", "--mode", "envelope") == 0 and capsys.readouterr().out == text
    os.close(source)
    path.write_text("x")
    assert run("show", "--table", path) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["show", "--round", "9"],
        ["record", "."],
    ],
)
def test_wrong_use_exits_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run(*arguments)
    assert caught.value.code == 2


def test_a_missing_file_is_wrong_use_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("record", "nowhere", "-o", "t.yaml") == run("show", "--table", "nowhere") == run("show", "resnet") == 2
    assert capsys.readouterr().err.count("nowhere: no such file or folder") == 2


def test_a_reader_that_stops_reading_is_not_an_error() -> None:
    command = f"{sys.executable} -m compliance.rcp show | head -n 1"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.count("\n") == 1 and done.stderr == ""
