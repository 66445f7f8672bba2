"""CosmoFlow with samples that several ranks share: the same as one process, and what cannot be shared is refused."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from common.config import ConfigError, load, rebuild
from common.ranks.dist import make_single_dist
from common.record import read_value
from compliance import check_logs
from cosmoflow import train
from cosmoflow.__main__ import main as run_cosmoflow
from cosmoflow.spatial import shared_text
from cosmoflow.synthesize import main as synthesize
from cosmoflow.train import Config
from tests.cosmoflow.case import CASE
from tests.cosmoflow.sharing import CASES, DOUBLE, DROPOUT, GATE, HALF, SINGLE, trained
from tests.problems import curve, flat

ROOT = Path(__file__).resolve().parents[2]
WORKER = Path(__file__).with_name("sharing.py")
HANGS_S = 300
GRIDS = [(2, "2"), (2, "[1,2]"), (4, "4"), (4, "[2,2]"), (4, "2")]
"""Numbers of ranks, and how they share samples; of the last, two groups of two."""
RESULTS = ("loss", "quality")
CONFIG = """
output_dir: run
data: {data_dir: data-32, sample_shape: [32, 32, 32, 4], workers: 1, cache: true, shift: 0.2, scale: 0.7}
model: {conv_size: 4, conv_layers: 5, fc1: 16, fc2: 8, dropout: 0.0, l2: 0.01}
schedule: {base_lr: 0.01, scaling: none, warmup_epochs: 0, decay: {2: 0.5}}
train: {global_batch_size: 3}
precision: {dtype: fp32}
dist: {timeout_s: 120}
submission: {org: Example University, platform: test_n1}
"""


def ran(folder, ranks, *words, status=0):
    """Run a module or script on a number of ranks; return its output."""
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone"] if ranks > 1 else []
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, *launcher, *map(str, words)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=False,
    )
    output = done.stdout + done.stderr
    assert done.returncode == status or (ranks > 1 and status and done.returncode == 1), output
    return output


# -- equivalence ---------------------------------------------------------------------------------------------


def with_one_process(folder, sides, names):
    """Fill a folder with data and configuration, and `one` in it with what one process finds; return the folder."""
    (folder / "case.yaml").write_text(CONFIG)
    for side in sides:
        made = f"--grid {side} --particles {side} --train 7 --validation 5 --compress none"
        assert synthesize([str(folder / f"data-{side}"), *made.split()]) == 0
    (folder / "one").mkdir()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # like the ranks
    with contextlib.chdir(folder):
        for name in names:
            torch.save(trained(folder, CASES[name], 1, make_single_dist()), folder / "one" / f"{name}.pt")
    torch.set_num_threads(threads)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return with_one_process(tmp_path_factory.mktemp("shared"), [32, 64], [*DOUBLE, *DROPOUT, *HALF, *SINGLE])


def apart(folder, name, ranks):
    """Return how far the ranks are from one process, relative to the largest entry of each tensor."""
    expected = torch.load(folder / "one" / f"{name}.pt")
    found = {}
    for rank in range(ranks):
        mine = torch.load(folder / f"{name}.{rank}.pt")
        assert mine.keys() == expected.keys()
        for key, tensor in mine.items():
            assert tensor.shape == expected[key].shape and expected[key].abs().max() > 0, key
            wrong = (tensor.double() - expected[key].double()).abs().max() / expected[key].double().abs().max()
            found[key] = max(found.get(key, 0.0), float(wrong))
    return found


def test_ranks_that_share_small_samples_train_as_one_process(tmp_path):
    small = with_one_process(tmp_path, [16], GATE)
    ran(small, 4, WORKER, small, "[2,2]", *GATE)
    for name in GATE:
        assert max(apart(small, name, 4).values()) < 1e-12, name


@pytest.mark.exhaustive
@pytest.mark.parametrize(("ranks", "spatial"), GRIDS, ids=str)
def test_ranks_that_share_samples_train_as_one_process(folder, ranks, spatial):
    """Losses, gradients, weights, the optimizer's state, the gradient's norm and the evaluation.

    Batches are of 3, 3 and 1 samples, so that of two groups one has none in the last; 5 samples are evaluated. In
    float32, one pool of a million whose greatest voxels nearly tie passes its gradient to another one, which changes
    that of the first weights by 1e-3: so it does between one thread and two. Hence the best of three seeds. In bf16
    many pools tie, which makes 0.3.
    """
    double = (*DOUBLE, *(DROPOUT if ranks == 4 and spatial != "2" else ()))
    ran(folder, ranks, WORKER, folder, spatial, *double, *HALF, *SINGLE)
    for name in double:
        assert max(apart(folder, name, ranks).values()) < 1e-12, name
    for name in HALF:
        found = apart(folder, name, ranks)
        assert max(value for key, value in found.items() if key.startswith(RESULTS)) < 5e-2
        assert max(value for key, value in found.items() if key.startswith("gradient")) < 0.5
    for side in (32, 64):
        found = [apart(folder, name, ranks) for name in SINGLE if name.startswith(str(side))]
        for one in found:
            assert max(value for key, value in one.items() if key.startswith(RESULTS)) < 1e-5
        for key in found[0]:
            assert min(one[key] for one in found) < 1e-4, key


@pytest.mark.exhaustive
def test_bytes_of_halos_and_activations_at_the_published_size(tmp_path):
    """Each rank sends one plane of the inputs, and of the gradients of the outputs, over each inner face."""
    forward = {2: 262_144, 3: 131_072, 4: 65_536, 5: 32_768}
    backward = {2: 524_288, 3: 262_144, 4: 131_072, 5: 65_536}
    script, shape = ROOT / "bench" / "spatial_worker.py", "[128,128,128]"
    # Without AVX-512 a CPU takes ten minutes for these convolutions in bf16; in fp32 the bytes are twice as many.
    dtype, times = ("bf16", 1) if "AVX512" in torch.backends.cpu.get_cpu_capability() else ("fp32", 2)
    (alone,) = json.loads(ran(tmp_path, 1, script, "[1,1]", shape, dtype, 1).splitlines()[-1])
    rows = json.loads(ran(tmp_path, 4, script, "[4,1]", shape, dtype, 1).splitlines()[-1])
    for rank, row in enumerate(rows):
        expected = {
            f"block {block} {way} to {place}": times * count
            for way, counts in (("forward", forward), ("backward", backward))
            for block, count in counts.items()
            for place in (rank - 1, rank + 1)
            if 0 <= place < 4
        }
        assert row["sent_bytes"] == expected
        assert row["saved_bytes"] < 1.1 / 4 * alone["saved_bytes"]
    for row in json.loads(ran(tmp_path, 4, script, "[2,2]", shape, "fp32", 1).splitlines()[-1]):
        # Half a plane to two neighbours, and an edge of it to the third, in numbers of four bytes.
        by_block = {}
        for name, count in row["sent_bytes"].items():
            block, way = name.removeprefix("block ").split()[:2]
            by_block.setdefault((way, int(block)), []).append(count)
        for way, counts in (("forward", forward), ("backward", backward)):
            for block, count in counts.items():
                edge = 2 * count // (256 >> block)
                assert sorted(by_block[way, block]) == [edge, count, count], (way, block)


# -- runs ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    """Return a folder with the small problem of the shared tests: symmetries, 24 + 7 samples, batches of 5."""
    folder = tmp_path_factory.mktemp("problem")
    (folder / "case.yaml").write_text(CASE.config.replace("DATA", "data"))
    assert synthesize([str(folder / "data"), *CASE.made.split()]) == 0
    ran(folder, 1, "-m", "cosmoflow.train", "case.yaml", "output_dir=one", status=4)
    return folder


def content(folder):
    """Return the shapes of the newest checkpoint by name."""
    state = torch.load(max(folder.glob("checkpoints/*.pt")), weights_only=True)["state"]
    shapes = {name: tensor.shape for name, tensor in state["model"].items()}
    for place, tensors in state["optimizer"]["state"].items():
        shapes |= {f"{place} {name}": tensor.shape for name, tensor in tensors.items()}
    return shapes


@pytest.mark.exhaustive
def test_a_run_goes_on_with_other_ranks(problem, monkeypatch, capfd):
    """Saved by two ranks, resumed by one process, by a grid of 2 × 2, and by two groups: the curve is the same."""
    words = ("-m", "cosmoflow.train", "case.yaml", "output_dir=shared")
    output = ran(problem, 2, *words, "train.epochs=1", "dist.spatial=2", status=4)
    assert "2 ranks share each sample, 2 × 1 along D × H, in 1 group(s)" in output
    assert output.count("each reads whole training samples") == 1
    assert content(problem / "shared") == content(problem / "one")
    ran(problem, 1, *words, "train.epochs=2", "--resume", status=4)
    output = ran(problem, 4, *words, "train.epochs=3", "dist.spatial=[2,2]", "--resume", status=4)
    assert "2 × 2 along D × H" in output and "computes all of" not in output
    assert content(problem / "shared") == content(problem / "one")
    ran(problem, 4, *words, "train.epochs=4", "dist.spatial=2", "--resume", status=4)
    for shared, expected in zip(curve(problem / "shared"), curve(problem / "one"), strict=True):
        assert shared == pytest.approx(expected, rel=1e-3)
    monkeypatch.chdir(problem)
    log = problem / "shared" / "result_0.txt"
    one = problem / "one" / "result_0.txt"
    assert read_value(log, "spatial_extents") == [2, 1] and read_value(one, "spatial_extents") is None
    assert read_value(log, "number_of_parameters") == read_value(one, "number_of_parameters") > 0
    assert read_value(log, "global_batch_size") == 5
    findings = [finding for run in check_logs([log], allow_mini=True).runs for finding in run.findings]
    assert not [finding for finding in findings if "spatial" in str(finding)]
    # The network is that of one device, wherever it was trained.
    capfd.readouterr()
    assert run_cosmoflow(["evaluate", "shared"]) == 1 and run_cosmoflow(["evaluate", "one"]) == 1
    shared, alone = (float(line.split("eval_error ")[1].split()[0]) for line in capfd.readouterr().out.splitlines())
    assert shared == pytest.approx(alone, rel=1e-3)
    output = ran(problem, 2, "-m", "cosmoflow", "evaluate", "shared", "dist.spatial=2", status=1)
    assert float(output.split("eval_error ")[1].split()[0]) == pytest.approx(shared, rel=1e-5)
    output = ran(problem, 3, "-m", "cosmoflow", "evaluate", "shared", "dist.spatial=2", status=1)
    assert "error: dist.spatial is 2, so that 2 ranks share" in output
    assert "LaunchError" not in output
    assert run_cosmoflow(["predict", "shared", "-o", "shared.npz"]) == 0


# -- what cannot be shared -----------------------------------------------------------------------------------


def config(*overrides):
    tree = {"output_dir": "run", "data": {"data_dir": "data", "sample_shape": [32, 32, 32, 4]}}
    return rebuild(Config, tree, "tree", overrides)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ("dist.spatial=0", "spatial is 0; expected numbers of ranks, 1 or more"),
        ("dist.spatial=[2,2,2]", "a list of 2"),
        ("dist.spatial=3", "3 ranks cannot share the 32 voxels along D, which they do not divide; expected a multiple"),
        ("dist.spatial=32", "32 voxels along D, 1 each, which pooling cannot halve; expected a multiple of 64"),
        ("dist.spatial=64", "32 voxels along D, some would have none; expected fewer ranks"),
        (
            "dist.spatial=[1,3]",
            "dist.spatial is [1, 3], but data.sample_shape is [32, 32, 32, 4]: 3 ranks cannot",
        ),
        ("dist.spatial=4 data.sample_shape=[36,32,32,4]", "36 voxels along D, 9 each, which pooling cannot halve"),
        ("dist.spatial=[2,4] data.sample_shape=[32,36,32,4]", "36 voxels along H, 9 each, which pooling cannot halve"),
        ("dist.spatial=8 model.conv_layers=2 model.kernel_size=12", "4 each, less than the kernel reaches"),
        ("dist.spatial=2 model.kernels=triton", "set model.kernels=torch"),
        ("dist.spatial=2 data.pipeline=dali", "data.pipeline dali, which reads whole samples"),
        ("dist.spatial=2 data.format=packed", "data.format packed, which is read whole; repack the samples as npy"),
        ("dist.spatial=2 data.apply_log=false", "no rank knows the mean of a whole sample"),
        ("dist.spatial=2 train.eval_ranks=2", "train.eval_ranks 2"),
        ("dist.spatial=2 precision.dtype=fp16", "set precision.dtype=bf16"),
    ],
)
def test_what_ranks_cannot_share_is_refused_before_anything_is_made(overrides, said):
    with pytest.raises(ConfigError) as error:
        config(*overrides.split())
    assert said in str(error.value) and "dist.spatial" in str(error.value)


@pytest.mark.parametrize("benchmark", ["deepcam", "oc20"])
def test_other_benchmarks_refuse_it(benchmark, capfd):
    module = pytest.importorskip(f"{benchmark}.train")
    assert module.main(["mini", "dist.spatial=2"]) == 2
    assert "each rank has whole samples; set it to 1" in capfd.readouterr().err


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_gpu_that_shares_samples_is_slower_and_says_so(device, tmp_path):
    (tmp_path / "case.yaml").write_text(CONFIG)
    config = load(Config, tmp_path / "case.yaml", ["dist.spatial=2"])
    ranks = SimpleNamespace(sharing=SimpleNamespace(world_size=2), data_size=1, device=torch.device(device))
    text = shared_text(config, ranks)
    assert ("\nwarning: dist.spatial is 2: " in text and "set dist.spatial=1" in text) == (device == "cuda")


def test_too_few_ranks_are_told(empty_folder, tmp_path, capfd):
    assert train.main(["mini", "dist.spatial=4"]) == 1
    said = capfd.readouterr().err
    assert "4 ranks share each sample, but there are 1 rank(s); start a multiple of 4" in said
    assert "Traceback" not in said and not list(tmp_path.iterdir())


@pytest.mark.exhaustive
def test_other_numbers_of_ranks_are_told(problem):
    words = ("-m", "cosmoflow.train", "case.yaml", "output_dir=wrong")
    output = ran(problem, 3, *words, "dist.spatial=2", status=1)
    assert "2 ranks share each sample, but there are 3 rank(s)" in output
    output = ran(problem, 4, *words, "dist.spatial=2", "instances.count=4", "instances.ranks=1", status=1)
    assert "an instance has 1 rank(s); set instances.ranks to a multiple of 2" in output


@pytest.mark.exhaustive
def test_instances_share_samples_among_their_ranks(problem):
    """Two networks at a time, each on two ranks that share its samples: each trains as it does alone."""
    words = ("-m", "cosmoflow.train", "case.yaml", "output_dir=two", "instances.count=2", "train.epochs=2")
    ran(problem, 4, *words, "instances.ranks=2", "dist.spatial=2", status=4)
    two = problem / "two"
    assert flat(curve(two / "instance_0")) == pytest.approx(flat(curve(problem / "one")[:2]), rel=1e-3)
    assert read_value(two / "instance_1" / "result_0.txt", "spatial_extents") == [2, 1]
