"""The cost model: its four times, hardware by name, files that are broken, and its error over results."""

import math
import re
from dataclasses import replace

import pytest

from common.errors import UsageError
from common.measure.devices import Ceilings, ceilings_of, read_ceilings
from compliance.formats.table import plain_text
from submission.results.cost_model import CostModel, Workload, cost_table, error_table, read_workloads
from submission.results.quantities import NodeData, parse_bytes
from tests.submission.results.conftest import CEILINGS

WORK = Workload(
    forward_flop=1e5, training_flop=3e5, memory_bytes=2e4, input_bytes=1e4, stored_bytes=5e3, gradient_bytes=4e4,
    halo_bytes=8e3, most_spatial=4, train_samples=1000, eval_samples=100, source="",
)  # fmt: skip
TOP = Ceilings(("V100",), 1e5, 2, 1e4, 1e4, 1e4, "")
MODEL = CostModel({"cosmoflow": WORK}, {"chip": TOP})


def test_the_longest_of_the_four_times_binds():
    one = MODEL.cost_step("cosmoflow", "chip", units=4, batch=8)
    assert (one.compute, one.memory, one.input, one.network) == pytest.approx((6, 4, 2, 2 * 3 / 4 * 40 / 10))
    assert (one.step, one.binds, one.samples_per_s) == (6, "compute", pytest.approx(8 / 6))
    # 125 steps of 6 s, and 100 samples evaluated at a third of the cost of training, by 4 units
    assert one.epoch_seconds == pytest.approx(125 * 6 + 100 * 1 / 4)
    for name, ceilings in (("network", replace(TOP, network_bytes_per_s=1e3)), ("memory", replace(TOP, value_bytes=4))):
        assert CostModel({"w": WORK}, {"c": ceilings}).cost_step("w", "c", 4, 8).binds == name


def test_ranks_that_share_a_sample_split_its_work_and_exchange_halos():
    one = MODEL.cost_step("cosmoflow", "chip", units=8, batch=4, spatial=2)
    assert (one.compute, one.input) == pytest.approx((1.5, 0.5))
    assert one.network == pytest.approx((2 * 7 / 8 * 40 + 8) / 10)


def test_a_result_shares_samples_as_its_logs_say(result):
    """Without a word about it, as few ranks share a sample as the batch allows."""
    told = replace(result("s", 64, 16), sharing=4)
    assert (MODEL.cost_result(told).spatial, MODEL.cost_result(result("s", 64, 16)).spatial) == (4, 1)
    assert MODEL.cost_result(replace(told, sharing=3)).spatial == 1  # 16 units cannot
    few = MODEL.cost_result(replace(result("s", 2, 16), sharing=4))
    assert (few.batch_size, few.spatial) == (4, 4)


def test_units_left_over_wait_for_the_others():
    assert MODEL.cost_step("cosmoflow", "chip", units=3, batch=4).compute == pytest.approx(6)


@pytest.mark.parametrize(
    ("units", "batch", "spatial", "said"),
    [(8, 4, 1, "batch of 4"), (8, 8, 8, "at most 4"), (6, 8, 4, "divisor"), (0, 8, 1, "0 units")],
)
def test_a_batch_that_cannot_be_shared_is_refused(units, batch, spatial, said):
    with pytest.raises(ValueError, match=said):
        MODEL.cost_step("cosmoflow", "chip", units, batch, spatial)


def test_scaling_out_shares_samples_before_the_batch_grows():
    steps = MODEL.scale_out("cosmoflow", "chip", [8, 16, 32, 1000], 16)
    assert [(one.units, one.batch_size, one.spatial) for one in steps] == [
        *((8, 16, 1), (16, 16, 1), (32, 16, 2), (1000, 250, 4)),
    ]
    assert "1,000" in plain_text(cost_table(steps))


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("NVIDIA A100-SXM4-80GB (400W)", "A100-SXM-80GB"),
        ("NVIDIA A100 - PCIe - 80 GB", "A100-PCIe-80GB"),
        ("NVIDIA A100", "A100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("NVIDIA Quadro RTX 5000", "RTX5000"),
        ("FUJITSU Processor A64FX", "A64FX"),
        ("Intel Xeon Phi Processor 7250", "KNL7250"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA B200", "B200"),
        ("AMD Instinct MI300A", "MI300A"),
        ("H100 NVL Tensor Core GPU (PCIe)", "H100-NVL"),
        ("NVIDIA H200 NVL", "H200-NVL"),
        ("NVIDIA GH200 NVL2", "GH200"),
        ("NVIDIA Blackwell GPU (B200-SXM-180GB)", "B200"),
        ("NVIDIA Blackwell Ultra GPU (B300-SXM-270GB)", "B300"),
        ("NVIDIA Blackwell Ultra GPU (GB300)", "GB300"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTXPRO6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "RTXPRO6000-MaxQ"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTXPRO6000-Server"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("NVIDIA RTX A5000", "RTXA5000"),
        ("AMD Instinct MI325X 256GB HBM3e", "MI325X"),
        ("AMD Instinct MI350X 288GB HBM3e", "MI350X"),
        ("AMD Instinct MI355X 288GB HBM3e", "MI355X"),
        ("AMD Radeon RX 7900 XTX", "RX7900XTX"),
        ("Habana Gaudi2", "Gaudi2"),
        ("Intel® Gaudi® 3 AI accelerator", "Gaudi3"),
        ("TPU-v5e", "TPU-v5e"),
        ("TPU-v5p", "TPU-v5p"),
        ("TPU v6e", "TPU-v6e"),
        ("TPU-trillium", "TPU-Trillium"),
        ("", ""),
        ("abacus", ""),
    ],
)
def test_hardware_is_found_by_the_names_of_system_descriptions(model, name):
    assert ceilings_of(model, read_ceilings()) == name


def test_all_shipped_workloads_can_be_costed_on_all_shipped_hardware():
    model = CostModel(read_workloads(), read_ceilings())
    for workload in model.workloads:
        for name in model.ceilings:
            first, second = model.scale_out(workload, name, [10_000, 100_000], 4096)
            assert 0 < second.epoch_seconds < first.epoch_seconds


def test_the_peak_of_a_format_or_else_that_of_training():
    known = read_ceilings()
    peaks = {name: [known[name].find_peak(asked) for asked in ("", "tf32", "bf16")] for name in ("A100", "P100")}
    assert peaks["A100"] == [("fp16", 312e12), ("tf32", 156e12), ("bf16", 312e12)]
    assert peaks["P100"] == [("fp32", 9.3e12)] * 3


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("peak_flop_per_s: 1e12", "peak_flops: 1e12", "unknown key peak_flops"),
        ("    source: measured\n", "", "source is missing; expected text"),
        ("1e12", "1e-308", "peak_flop_per_s: expected 1e+03 to 1e+21 per second; got 1e-308"),
        ("1e12", ".nan", "peak_flop_per_s: expected 1e+03 to 1e+21 per second; got nan"),
        ("value_bytes: 2", "value_bytes: 0", "value_bytes: expected 1, 2, 4, 8; got 0"),
        ("value_bytes: 2", "value_bytes: 2\n    watts: 0", "watts: expected 1 to 100000; got 0"),
        (
            "value_bytes: 2",
            "value_bytes: 2\n    other_peaks: {int4: 1e12}",
            "other_peaks: expected formats of fp8, fp16",
        ),
        ("value_bytes: 2", "value_bytes: 2\n    other_peaks: {fp64: 1}", "other_peaks.fp64: expected 1e+03"),
        ("1e12", "fast", "peak_flop_per_s: expected a number; got"),
        ("[chip]", "chip", "match: expected a list"),
        ("[chip]", "[]", "match: expected words of the model name"),
        ("[chip]", "[chip, '-']", "match: expected words of the model name"),
        ("ceilings:", "ceiling:", "unknown key ceiling; did you mean ceilings"),
        ("  mine:\n    match: [chip]", "  mine: 3\n  other:\n    match: [chip]", "ceilings: mine: expected a mapping"),
        (CEILINGS, "ceilings: {A: {}}", "match is missing; expected a list"),
        (CEILINGS, "ceilings: [1]", "ceilings: expected a mapping of a name"),
        (CEILINGS, "", "empty; expected lines such as `key: value`"),
    ],
)
def test_a_broken_file_is_refused_with_file_and_key(tmp_path, old, new, said):
    file = tmp_path / "mine.yaml"
    file.write_text(CEILINGS.replace(old, new))
    with pytest.raises(UsageError, match=f"^{re.escape(str(file))}(?s:.*){re.escape(said)}") as refused:
        read_ceilings(file)
    assert len(str(refused.value)) < len(str(file)) + 300


def test_ranks_that_share_samples_need_halos():
    with pytest.raises(ValueError, match="halo_bytes"):
        replace(WORK, halo_bytes=None)


def test_the_error_over_results_with_and_without_a_factor_for_the_system(result):
    def slower(factor, units):
        minutes = factor * MODEL.scale_out("cosmoflow", "chip", [units], 64)[0].epoch_seconds / 60
        return result(f"s_n{units}", 64, units, run_epoch_time=minutes, run_time=units)

    error = MODEL.published_pairs([slower(4, 8), slower(5, 16), result("alone", 64, 8, run_epoch_time=1)])
    (pair,) = error.pairs
    assert (pair.first_ratio, pair.second_ratio, pair.calibrated_ratio) == pytest.approx((1 / 4, 1 / 5, 4 / 5))
    assert (error.median_error, error.median_calibrated_error) == pytest.approx((0.8, 0.2))
    assert "over 1 pair of results" in error.text
    assert "80 % in the median, and by 20 %" in plain_text(error_table(error))
    assert MODEL.published_pairs([]).median_error is None and "unknown" in MODEL.published_pairs([]).text


def test_input_from_storage_counts_where_memory_cannot_hold_the_data(result):
    """Twice the units are as fast each, unless memory holds the data of twice the nodes alone."""

    def on(units, held, minutes):
        data = NodeData(nodes=units / 4, raw=2e9, stored=1e9, memory=2e9 if held else 1e9, disk=None)
        return replace(result(f"s_n{units}", 64, units, run_epoch_time=minutes), data=data)

    slow = CostModel({"cosmoflow": replace(WORK, stored_bytes=1e9)}, {"chip": replace(TOP, network_bytes_per_s=1e9)})
    (pair,) = slow.published_pairs([on(8, False, 4), on(16, True, 1)]).pairs
    compute, storage = slow.cost_result(on(8, False, 4)), slow.cost_result(on(8, False, 4), from_storage=True)
    # 8 samples of 1 GB per unit and step; a quarter of 1 GB/s for each
    assert (compute.input, storage.input, storage.binds) == (pytest.approx(8), pytest.approx(32), "input")
    assert (pair.published_efficiency, pair.efficiency) == pytest.approx((2, 1))
    assert pair.storage_efficiency == pytest.approx(storage.epoch_seconds / compute.epoch_seconds)
    assert (pair.first_data_in, pair.second_data_in, pair.remark) == ("neither", "memory", "")
    error = slow.published_pairs([on(8, True, 4), on(16, True, 1)])
    assert error.pairs[0].remark.startswith("better than linear")
    assert error.log_error == error.storage_log_error == pytest.approx(math.log(2)) and "stays off" in error.text


@pytest.mark.parametrize(
    ("text", "gigabytes"),
    [
        *(("64 GB", 64), ("32GiB", 34.359738368), ("1TB DDR4", 1000), ("980Gb", 980), ("1,024 GB", 1024)),
        *(("2x 1.92TB NVMe SSD + 30TB U.2 NVMe SSD", 33840), ("144GB /tmp partition on a 240GB SSD", 144)),
        *(("128GB (2133 MT/s) DDR4", 128), ("96 GB DDR4 + 16 GB MCDRAM", 112), ("8 x 64GB (512 GB)", 512)),
        *((text, None) for text in ("", "0", "0 GB", "103 PB", "much", "512", 512, None, ["64 GB"])),
    ],
)
def test_bytes_of_system_descriptions(text, gigabytes):
    assert parse_bytes(text) == (None if gigabytes is None else pytest.approx(gigabytes * 1e9))


def test_a_workload_of_one_round_comes_before_that_of_all(result):
    model = CostModel({"cosmoflow": WORK, "cosmoflow@0.7": WORK}, {"chip": TOP})
    assert model.cost_result(result("s", 64, 8, round="0.7")).workload == "cosmoflow@0.7"
    assert model.cost_result(result("s", 64, 8)).workload == "cosmoflow"
    for unknown in (result("s", 64, 8, mini=True), result("s", None, 8), result("s", 64, 8, accelerator="abacus")):
        assert model.cost_result(unknown) is None
