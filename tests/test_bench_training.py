"""bench/cosmoflow.py, deepcam.py and oc20.py: arguments, one measurement of tiny networks; no times are asserted."""

import json
import runpy
import sys
from types import SimpleNamespace

import pytest
import torch

from common.training.profile import count_sample
from deepcam.model import DeepLab, ModelConfig
from oc20 import model as dimenet
from oc20.graphs import build_graph
from tests.bench_script import BENCH
from tests.problems import run_process

pytestmark = pytest.mark.exhaustive

CASE = {"batch": 1, "dtype": "fp32", "threads": 1, "device": "cpu", "alone": False}
COSMOFLOW = CASE | {"side": 8, "channels": 2, "layers": 2}
MODEL = {"width": 0.05, "middle_blocks": 1}
DEEPCAM = CASE | {"height": 32, "width": 32, "channels": 16, "model": MODEL, "optimizer": "adamw"}
SMALL = {"hidden": 16, "blocks": 1, "interaction": 8, "spherical": 4, "radial": 5, "out": 16, "basis": 4}
OC20 = CASE | {"batch": 2, "slab": [2, 2, 2], "model": SMALL}


def run(script, *arguments, text=""):
    return run_process(sys.executable, f"{BENCH}/{script}", *arguments, input=text)


@pytest.fixture
def script(monkeypatch):
    """Return the names of a script in bench/, which can import its neighbours."""
    monkeypatch.syspath_prepend(BENCH)
    return lambda name: runpy.run_path(f"{BENCH}/{name}")


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("cosmoflow.py", ["--peer-python", "python", "--no-peer"], "not allowed with"),
        ("cosmoflow.py", ["--turns", "many"], "invalid int value"),
        ("deepcam.py", ["--quickly"], "unrecognized arguments"),
        ("deepcam.py", ["--local-batch", "x"], "invalid int value"),
        ("oc20.py", ["--local-batch", "x"], "invalid int value"),
    ],
)
def test_wrong_arguments_are_refused(name, arguments, said):
    done = run(name, *arguments)
    assert done.returncode == 2 and said in done.stderr


def test_a_worker_measures_a_turn_for_each_line():
    done = run("cosmoflow_measures.py", json.dumps(COSMOFLOW), text="\n\n")
    facts, *turns = map(json.loads, done.stdout.splitlines())
    # Convolutions 4 -> 2 -> 4, then 2³ voxels x 4 channels -> 128 -> 64 -> 4.
    assert facts["parameters"] == 4 * 27 * 2 + 2 + 2 * 27 * 4 + 4 + 32 * 128 + 128 + 128 * 64 + 64 + 64 * 4 + 4
    assert len(turns) == 2
    assert all(turn[key] > 0 for turn in turns for key in ("cpu_s", "wall_s", "flop_per_cpu_s", "memory_mb"))


@pytest.mark.parametrize(("name", "case"), [("deepcam", DEEPCAM), ("oc20", OC20)])
def test_both_sides_train_the_same_network_in_the_same_format(name, case):
    given = json.dumps(case | {"dtype": "bf16"})
    sides = [run(f"{name}_{side}.py", given, text="\n") for side in ("measures", "plain")]
    (ours, _), (peer, turn) = (map(json.loads, side.stdout.splitlines()) for side in sides)
    assert ours["parameters"] == peer["parameters"] and turn["cpu_s"] > 0
    assert ours.get("triplets_per_sample") == peer.get("triplets_per_sample")


@pytest.mark.parametrize("model", [{}, {"output_stride": 8, "aspp_rates": [1, 2, 4, 6], "width": 0.25}])
def test_the_plain_network_has_as_much_to_do_as_ours(script, model):
    with torch.device("meta"):
        network, ours = script("deepcam_plain.py")["Network"](16, model), DeepLab(ModelConfig(**model), 16)
    x_BHWC = torch.empty(1, 768, 1152, 16, device="meta")
    flops = count_sample(network, x_BHWC.permute(0, 3, 1, 2)).training
    parameters = sum(weights.numel() for weights in network.parameters())
    # Ours merges the pooled view of the pyramid once, not in each place of the map.
    assert count_sample(ours, x_BHWC).training == pytest.approx(flops, rel=2e-3)
    assert parameters == sum(weights.numel() for weights in ours.parameters())
    if not model:
        first = 9 * 16 * 32 * 384 * 576  # needs no gradient of its input
        assert parameters == 56_454_720 and (flops + 2 * first) / 3 == pytest.approx(2 * 327.67e9, rel=1e-4)


@pytest.mark.parametrize("model", [{}, SMALL])
def test_the_plain_network_gives_the_forces_of_ours(script, model):
    plain = script("oc20_plain.py")
    frames = plain["frames"](SimpleNamespace(**OC20))
    ours, peer = dimenet.build_model(dimenet.ModelConfig(**model), 0), plain["Network"](model)
    generator = torch.Generator().manual_seed(0)
    for ours_, peers in zip(ours.parameters(), peer.parameters(), strict=True):
        with torch.no_grad():  # the last maps are 0 at the start
            ours_ += 0.02 * torch.randn(ours_.shape, generator=generator)
            peers.copy_(ours_)
    if not model:
        assert sum(parameter.numel() for parameter in peer.parameters()) == 1_810_182
    _, forces = ours(build_graph(frames))
    torch.testing.assert_close(peer(plain["joined"](frames)), forces, rtol=1e-4, atol=1e-5 * forces.abs().max().item())
    assert forces.any()


def test_a_peer_that_would_take_the_whole_memory_is_left_out(script):
    oc20 = script("oc20.py")
    assert oc20["plain"](oc20["Oc20Case"](slab=(2, 2, 2), dtype="bf16")).dtype == "bf16"
    assert oc20["plain"](oc20["Oc20Case"](batch=10**6)) is None
