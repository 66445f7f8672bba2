"""`python -m BENCHMARK measure`: its figure of merit as tools read it, its samples, and wrong use."""

import json
import re
import statistics
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest

from common.benchmarks import PACKAGES
from compliance.benchmarks import MINIS
from cosmoflow.model import ModelConfig
from cosmoflow.train import CosmoFlow
from tests.case import bind_command
from tests.problems import ROOT, run_process, torchrun
from tests.tape import Tapes, record_on

LINE = re.compile(
    r"^FOM (?P<benchmark>\w+) samples/s (?P<rate>[\d.e+]+) units (?P<units>\d+) batch (?P<batch>\d+) "
    r"dtype (?P<dtype>\w+) spread (?P<spread>[\d.]+)(?: joules (?P<joules>[\d.e+]+) samples/J [\d.e+]+)?$",
    re.M,
)
BENCHMARKS = [
    "cosmoflow",
    *(pytest.param(name, marks=pytest.mark.exhaustive) for name in PACKAGES if name != "cosmoflow"),
]


def measured(text, path):
    """Return the pairs of the one line and the content of the file, which must agree."""
    (line,) = LINE.finditer(text)
    found = json.loads(path.read_text())
    jsonschema.validate(found, json.loads((ROOT / "docs/reference/fom.schema.json").read_text()))
    assert found["benchmark"] == line["benchmark"] and found["units"] == int(line["units"])
    assert found["samples_per_s"] == pytest.approx(float(line["rate"]), rel=1e-5)
    assert found["samples_per_s"] == pytest.approx(1000 * found["batch"] / found["median_step_ms"])
    return line, found


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_mini(benchmark, empty_folder, tmp_path, capsys):
    measure, variant = bind_command(benchmark, "measure").main, MINIS[benchmark][0].variant
    # Four steps also where they take long: float32 is not emulated anywhere.
    assert measure(["mini", "precision.dtype=fp32", "--steps", "4", "--seconds", "1000"]) == 0
    out = capsys.readouterr().out
    _, found = measured(out, Path(f"runs/{benchmark}-measure/fom.json"))
    assert found["network"] == variant and len(found["step_ms"]) == 4 and "not an MLPerf result" in out
    assert not list(tmp_path.rglob("result_0.txt"))
    data = f"data/{benchmark}-measure-{variant}"
    options = ["precision.dtype=fp32", "train.global_batch_size=5", "profile.steps=2", "--steps", "1"]
    options += ["--data", data, "-o", "here.json"]
    metered = ["power.source=command:node:watts:echo 250", "power.interval_s=0.05"]
    assert measure(["mini", *options, *metered]) == 0
    out = capsys.readouterr().out
    line, found = measured(out, Path("here.json"))
    assert line["batch"] == "5" and found["data"] == data and "generating" not in out
    # The time of the steps, but for 1%, and what lies between them; the file covers more than that.
    assert found["energy_j"] >= 0.99 * 0.25 * sum(found["step_ms"]) and found["energy_scope"] == "node"
    assert found["samples_per_j"] == pytest.approx(15 / found["energy_j"]) and line["joules"]
    first = Path("power/node_0.txt").read_bytes()
    assert measure(["mini", *options, *metered, "power.efficiency=0.9"]) == 0
    assert Path("power.interrupted-1/node_0.txt").read_bytes() == first
    assert b'"conversion_eff", "value": 0.9' in Path("power/node_0.txt").read_bytes()
    assert len(found["step_ms"]) == 3  # at least
    assert Path("profile/table.txt").read_text().startswith("2 step(s) of rank 0 of 1, after 3 others\n")
    assert "read profile/table.txt, and open profile/trace.json.gz" in out


def test_fidelity(empty_folder, monkeypatch, capsys):
    monkeypatch.setattr("common.commands.measure.FIDELITY_SEEDS", 2)
    monkeypatch.setattr("common.commands.measure.FIDELITY_STEPS", 4)
    small = ["mini", "model.conv_size=4", "train.global_batch_size=2", "schedule.warmup_epochs=0"]
    measure, command = bind_command("cosmoflow", "measure").main, [*small, "--steps", "3", "--fidelity", "-o", "f.json"]
    assert measure([*command, "precision.dtype=bf16"]) == 0
    out = capsys.readouterr().out
    _, found = measured(out, Path("f.json"))
    # A sum is off by a few roundings: of 2**-24 in float32, of 2**-8 in bf16.
    for ruler, errors in ((found[f"fp32_{name}"], found[name]) for name in ("output_errors", "gradient_errors")):
        assert len(errors) == 2 and 0 < max(ruler) < 2**-12 < min(errors) < 1
    assert len(found["loss_errors"]) == 2 and 0 < max(found["loss_errors"]) < 1
    assert f"losses {statistics.median(found['loss_errors']):.2%} of their fall apart" in out
    assert measure([*command, "precision.dtype=fp32"]) == 0
    out = capsys.readouterr().out
    _, found = measured(out, Path("f.json"))
    assert found["loss_errors"] == [0] and not found["fp32_output_errors"] and "float32 itself" in out
    assert measure([*command, "precision.dtype=bf16", "schedule.base_lr=1e6"]) == 1
    assert "expected it to fall: change schedule.base_lr" in capsys.readouterr().err


@pytest.mark.exhaustive
def test_fidelity_counts_the_rounding_of_messages_between_ranks(tmp_path):
    small = ["mini", "model.conv_size=4", "train.global_batch_size=4", "--steps", "3", "--fidelity", "-o", "f.json"]
    small += ["precision.dtype=fp32", "dist.gradients=bf16"]
    done = run_process(*torchrun(2), "-m", "cosmoflow", "measure", *small, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "f.json").read_text())
    # Each gradient is rounded to bf16 before it is sent, and the sum again: by 2**-9 at most.
    assert found["dtype"] == "fp32" and set(found["output_errors"]) == {0}
    assert all(2**-12 < error < 2**-8 for error in found["gradient_errors"]) and min(found["loss_errors"]) > 0


def test_a_training_is_not_measured_over(empty_folder, tmp_path, capsys):
    for name in ("result_0.txt", "fom.json"):
        Path(name).write_text("of a training")
    assert bind_command("cosmoflow", "measure").main(["mini", "-o", "fom.json"]) == 2
    assert "is the folder of a training" in capsys.readouterr().err
    assert Path("fom.json").read_text() == "of a training" and len(list(tmp_path.iterdir())) == 2


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("benchmark", "words", "network", "batch"),
    [
        ("oc20", [], "full", "2"),
        ("deepcam", ["mini", "batchnorm_group_size=2", "train.global_batch_size=4"], "mini2", "4"),
    ],
)
def test_two_ranks(benchmark, words, network, batch, tmp_path):
    ran = run_process(*torchrun(2), "-m", benchmark, "measure", *words, "--steps", "3", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    line, found = measured(ran.stdout, tmp_path / f"runs/{benchmark}-measure/fom.json")
    assert (line["units"], line["batch"], found["network"]) == ("2", batch, network)


def test_operations_do_not_depend_on_the_kernels():
    shape = (128, 128, 128, 4)
    for kernels in ("torch", "triton", "fused"):
        problem = CosmoFlow.__new__(CosmoFlow)  # without data
        problem.config = SimpleNamespace(model=ModelConfig(kernels=kernels), data=SimpleNamespace(sample_shape=shape))
        assert problem.count_flops() == pytest.approx((192.09e9, 68.862e9), rel=1e-4)
        assert problem.count_table3() == pytest.approx(3 * 68.880e9, rel=1e-4)


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (["nosuch"], 2, "has no configuration 'nosuch'"),
        (["train.nosuch=3"], 2, "unknown key train.nosuch"),
        (["mini", "--steps", "0"], 2, "at least 1"),
        (["mini", "-o", "."], 2, "--output: . is a folder; expected a file"),
        (["mini", "profile.steps=-1"], 2, "steps is -1; expected at least 0"),
        (["mini", "instances.count=2"], 2, "one instance"),
        (["mini", "--data", "nowhere"], 1, "nowhere"),
        (["mini", "data.data_dir=elsewhere"], 2, "reads its samples from --data DIR"),
        (["mini", "data.sample_shape=[16, 16, 16, 4]"], 1, "would not fit: sample_shape would be [32, 32, 32, 4]"),
        (["mini", "power.source=meter"], 2, "power.source is 'meter'; expected one of command"),
    ],
)
def test_wrong_use(words, status, told, empty_folder, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        raise SystemExit(bind_command("cosmoflow", "measure").main(words))
    assert ended.value.code == status and told in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_a_configuration_whose_data_are_not_read_says_so(empty_folder, tmp_path, capsys):
    small = "data: {data_dir: /data/mine}\ntrain: {global_batch_size: 1}\nprecision: {dtype: fp32}\n"
    (tmp_path / "mine.yaml").write_text(f"base: {ROOT}/cosmoflow/mini.yaml\n{small}")
    assert bind_command("cosmoflow", "measure").main(["mine.yaml", "--steps", "3", "--warmup", "1"]) == 0
    assert "data.data_dir of mine.yaml is not read; --data /data/mine measures with" in capsys.readouterr().out


@pytest.mark.exhaustive
def test_steps_are_recorded_also_where_a_batch_repeats_samples(empty_folder, monkeypatch, capsys):
    tapes = Tapes()
    record_on(tapes, monkeypatch.setattr)
    # Of 32 samples.
    words = ["mini", "model.conv_size=2", "precision.dtype=fp32", "train.global_batch_size=40", "--steps", "3"]
    assert bind_command("cosmoflow", "measure").main(words) == 0
    assert tapes.played >= 5 and "without CUDA graphs" not in capsys.readouterr().out
