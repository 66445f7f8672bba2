"""bench/gpu.py: the runner with sections that fail or hang, its page and references, and a dry run of all sections."""

import inspect
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from common.config import load
from common.named_configs import find_config
from common.training.flops import count
from cosmoflow.model import CosmoFlow
from cosmoflow.model import ModelConfig as CosmoFlowConfig
from deepcam.model import DeepLab
from deepcam.model import ModelConfig as DeepCamConfig

ROOT = Path(__file__).resolve().parents[1]
BENCH = ROOT / "bench"
COMMAND = [sys.executable, BENCH / "gpu.py"]
MODULE = """
import subprocess, sys, time
def good(bench):
    with bench.case("step", network="oc20", batch=1, variant="a") as row:
        row["ms"] = float(len(bench.known))
def bad(bench):
    with bench.case("layer", name="wrong") as row:
        row.update(ms=1.0, relative_error=float("nan"))
    with bench.case("layer", name="error"):
        raise RuntimeError("out of memory")
    raise SystemExit("the driver is gone")
def slow(bench):
    with bench.case("layer", name="kept") as row:
        row["ms"] = 1.0
    with bench.case("layer", name="hangs"):
        print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid, flush=True)
        time.sleep(600)
"""


@pytest.fixture
def gpu(monkeypatch):
    """Import the package of the script."""
    monkeypatch.syspath_prepend(BENCH)
    monkeypatch.syspath_prepend(ROOT)  # before the scripts, which have names of packages
    before = set(sys.modules)
    from gpu import cases, counters, networks, page, references, runner, sections, training, variants

    yield {
        module.__name__.removeprefix("gpu."): module
        for module in (cases, counters, networks, page, references, runner, sections, training, variants)
    }
    for name in set(sys.modules) - before:
        if name.partition(".")[0] == "gpu":
            del sys.modules[name]


def run(*arguments, **environment):
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False, env=os.environ | environment
    )
    return done.returncode, done.stdout + done.stderr


def ends(process):
    """Tell whether a process ends soon; one that nobody waits for has ended, too."""
    stat = Path(f"/proc/{process}/stat")
    for _ in range(100):
        if not stat.exists() or stat.read_text().rpartition(") ")[2].startswith("Z"):
            return True
        time.sleep(0.1)
    return False


@pytest.fixture
def three_sections(tmp_path):
    """Return the command of a copy of the script whose sections are those of MODULE."""
    copy = tmp_path / "bench"
    (copy / "gpu").mkdir(parents=True)
    for name in ("__init__", "background", "cases", "child", "clock", "networks", "page", "runner", "sections"):
        (copy / "gpu" / f"{name}.py").write_text((BENCH / "gpu" / f"{name}.py").read_text())
    for name in ("common", "cosmoflow", "deepcam", "oc20", "constraints.txt"):
        (tmp_path / name).symlink_to(ROOT / name)
    (copy / "gpu.py").write_text((BENCH / "gpu.py").read_text())
    (copy / "gpu" / "made.py").write_text(MODULE)
    names = ", ".join(f'Section("{name}", "made:{name}", 1, {limit}, "", "")' for name, limit in LIMITS.items())
    with (copy / "gpu" / "sections.py").open("a") as file:
        file.write(f"\nSECTIONS = ({names})\nRUNS = {{1: {tuple(LIMITS)!r}}}\n")
    return [sys.executable, copy / "gpu.py", "--dry-run", "-o", tmp_path / "out.json"]


LIMITS = {"bad": 60, "slow": 4, "good": 60}


@pytest.mark.slow
def test_sections_that_fail_or_hang_end_alone_and_what_they_found_is_kept(three_sections, tmp_path, monkeypatch):
    text = (tmp_path / "bench/gpu/runner.py").read_text()
    (tmp_path / "bench/gpu/runner.py").write_text(text.replace("900.0 if self.dry else ", ""))
    done = subprocess.run(three_sections, capture_output=True, text=True, check=False)
    found = json.loads((tmp_path / "out.json").read_text())["sections"]
    assert done.returncode == 1, done.stderr
    assert {name: one["status"] for name, one in found.items()} == {"bad": "failed", "slow": "overran", "good": "done"}
    wrong, error = found["bad"]["rows"]
    assert wrong["wrong"] == "relative_error is nan" and "ms" not in wrong
    assert error["error"].startswith("RuntimeError: out of memory") and found["bad"]["error"] == "the driver is gone"
    kept, hangs = found["slow"]["rows"]
    assert kept["ms"] == 1.0 and hangs["under_way"]
    assert found["good"]["rows"][0]["ms"] == 4.0  # the rows of earlier sections
    log = (tmp_path / "out.log").read_text()
    helper = int(log.partition("== slow\n")[2].splitlines()[0])
    assert ends(helper)
    # Again: only what is not done.
    begin = found["good"]
    subprocess.run([*three_sections, "--sections", "bad", "good"], capture_output=True, check=False)
    assert json.loads((tmp_path / "out.json").read_text())["sections"]["good"] == begin


@pytest.mark.slow
def test_a_run_that_is_ended_leaves_no_section_behind(three_sections, tmp_path):
    with subprocess.Popen([*three_sections, "--sections", "slow"], stdout=subprocess.PIPE) as process:
        rows = tmp_path / "out.json"
        for _ in range(600):
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            if rows.exists() and children:
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
    assert children
    assert all(map(ends, children))


@pytest.mark.slow
def test_a_run_without_time_says_what_it_left_out(tmp_path):
    status, text = run("--run", 1, "-o", tmp_path / "out.json", "--budget", 1)
    found = json.loads((tmp_path / "out.json").read_text())
    assert status == 1 and "ceilings            skipped" in text
    assert {one["status"] for one in found["sections"].values()} == {"skipped"}
    assert "hostname" not in found["machine"] and os.uname().nodename not in json.dumps(found)


def test_wrong_use_is_refused():
    assert run("--run", 4)[0] == 2
    status, text = run("--dry-run")
    assert status == 2 and "-o OUT.json is missing" in text


def test_help_names_the_wheels_with_their_versions():
    status, text = run("--help")
    assert status == 0
    for name in ("msgspec", "isal", "crc32c", "lmdb", "ase", "mlperf-logging", "tqdm"):
        assert f"{name}==" in text


def test_each_run_fits_its_budget_and_its_places_exist(gpu):
    sections = gpu["sections"]
    for number in sections.RUNS:
        assert sum(section.seconds for section in sections.of_run(number)) <= sections.BUDGET_S
    named = {name for names in sections.RUNS.values() for name in names}
    assert named == {section.name for section in sections.SECTIONS}
    for section in sections.SECTIONS:
        module, _, function = section.place.partition(":")
        assert f"def {function}(bench: Bench)" in (BENCH / "gpu" / f"{module}.py").read_text(), section.place


def test_all_variants_are_configurations(gpu):
    benchmarks, variants = gpu["training"].BENCHMARKS, gpu["variants"]
    for network, benchmark in benchmarks.items():
        for name, variant in vars(variants).items():
            ours = (
                variants.FUSED["kernels"] in variant.model.values() if isinstance(variant, variants.Variant) else None
            )
            if ours is None or (ours and network != "cosmoflow") or (variant.model and network == "deepcam"):
                continue
            if variants.COMPILE in variant.keys and network != "deepcam":
                continue
            keys = ["submission.division=open", "data.data_dir=d", *variant.overrides]
            assert load(benchmark.config, find_config(network, "config"), keys), name


def test_the_page_is_what_the_script_writes(gpu):
    assert (ROOT / "docs/performance/gpu.md").read_text() == gpu["page"].page([]), "see bench/gpu.py --help"


def test_without_results_the_page_claims_nothing(gpu):
    text = gpu["page"].page([])
    assert text.count("*not measured*") >= 20 and "is measured yet" in text


ROW = {"network": "cosmoflow", "batch": 16, "ms": 10.0, "ms_again": 10.5, "per_s": 1600.0, "memory_mb": 9000.0}
ROW |= {"what": "step", "host_ms": 2.0, "wait_share": 0.0, "waits": 0}


def results(*rows):
    about = {"run": 1, "date": "2026-01-01", "device": "a GPU", "torch": "2", "cuda": "13", "triton": "3"}
    about |= {"python": "3.12", "commit": "abc", "sources": "def"}
    return {"machine": about, "sections": {"cosmoflow-steps": {"status": "done", "seconds": 9.0, "rows": list(rows)}}}


def test_the_page_holds_steps_against_floors_and_published_values(gpu, tmp_path):
    ceilings = [
        {"what": "ceiling", "name": "product 8192³", "format": "bf16", "flop_per_s": 192.1e12, "ms": 1.0},
        {"what": "ceiling", "name": "copy", "bytes_per_s": 1.88e12, "ms": 1.0},
    ]
    wrong = {"what": "step", "network": "cosmoflow", "batch": 16, "variant": "b", "wrong": "relative_error is nan"}
    given = results(
        *ceilings, ROW | {"variant": "torch, eager"}, ROW | {"variant": "a", "per_s": 3200.0, "note": "no"}, wrong
    )
    (tmp_path / "run1.json").write_text(json.dumps(given))
    text = gpu["page"].page([tmp_path / "run1.json"])
    # 16 samples of 1 ms of operations and 1 ms of bytes.
    assert "| step | torch, eager | 16 | 1,600 | 10.00 (10.50) | 0.3 × |" in text and "| 7.1 × | 9.0 |" in text
    assert (
        "| 1,600/s | 3,200/s |" in text
        and "a (not recorded)" in text
        and "| step | b | 16 | wrong: relative_error is nan |" in text
    )
    assert "done, 5 cases in 9 s, 1 wrong" in text and "Measured: 192 TFLOP/s" in text
    assert "1,600/s" in gpu["page"].summary([given])


def test_the_floors_are_of_what_the_networks_do(gpu):
    networks = gpu["networks"]
    with torch.device("meta"):
        cosmoflow, deepcam = CosmoFlow(CosmoFlowConfig(), (128, 128, 128, 4)), DeepLab(DeepCamConfig(), 16)
        universe, snapshot = torch.empty(1, 128, 128, 128, 4), torch.empty(1, 768, 1152, 16)
    assert count(cosmoflow, universe).training == pytest.approx(networks.COSMOFLOW.flop, rel=1e-3)
    assert count(deepcam, snapshot).training == pytest.approx(networks.DEEPCAM.flop, rel=3e-3)


@pytest.mark.parametrize("name", ["cosmoflow", pytest.param("oc20", marks=pytest.mark.slow)])
def test_references_accept_the_network_and_refuse_a_wrong_one(gpu, name, monkeypatch):
    references = gpu["references"]
    cpu = torch.device("cpu")
    errors = references.compare(name, {}, "fp32", cpu)
    assert 0 < errors["output_error"] < 1e-5

    def scaled(model):
        filled = fill(model)
        with torch.no_grad():
            last = list(filled.parameters())[-1]
            last.mul_(1.1)
        return filled

    fill = references.fill
    monkeypatch.setattr(references, "checksum", lambda *_: references.reference(name, False)["checksum"])
    monkeypatch.setattr(references, "fill", scaled)
    with pytest.raises(gpu["cases"].WrongError):
        references.compare(name, {}, "fp32", cpu)


def test_references_of_other_weights_are_not_compared(gpu, monkeypatch):
    references = gpu["references"]
    monkeypatch.setattr(references, "draw", lambda seed: draw(seed + 1))
    draw = references.np.random.RandomState
    with pytest.raises(RuntimeError, match="make it again"):
        references.compare("cosmoflow", {}, "fp32", torch.device("cpu"))


def test_references_stay_small():
    assert sum(path.stat().st_size for path in (BENCH / "gpu_references").iterdir()) < 10e6


def test_counters_are_read_in_bytes_and_nanoseconds(gpu):
    counters = gpu["counters"]
    units = {"bytes_read": "Mbyte", "time_ns": "us"}
    lines = ["==PROF== Connected", '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"']
    lines += [f'"0","k","{metric}","{units.get(name, "%")}","1,234.5"' for metric, name in counters.METRICS.items()]
    found = counters.counted(lines)
    assert found["bytes_read"] == 1_234_500_000 and found["time_ns"] == 1_234_500
    with pytest.raises(RuntimeError, match="lacks"):
        counters.counted(lines[:4])


def test_torch_has_what_only_a_gpu_needs():
    assert "capture_error_mode" in inspect.signature(torch.cuda.graph).parameters
    names = "CUDAGraph Event empty_cache max_memory_reserved reset_peak_memory_stats set_sync_debug_mode synchronize"
    assert [name for name in names.split() if not hasattr(torch.cuda, name)] == []


@pytest.mark.slow
@pytest.mark.usefixtures("untraced")
def test_a_dry_run_makes_every_case_of_all_runs(gpu, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    alone, text = run("--dry-run", "-o", "out.json", "--sections", "one-rank")
    assert alone == 0, text  # it has the data that it reads, although no other section asks for them
    status, text = run("--dry-run", "-o", tmp_path / "out.json")
    found = json.loads((tmp_path / "out.json").read_text())["sections"]
    marks = {"error", "wrong", "late", "under_way"}
    bad = [row for one in found.values() for row in one["rows"] if marks & row.keys()]
    assert status == 0 and not bad, f"{text}\n{bad}"
    assert {name: one["status"] for name, one in found.items()} == {
        one.name: "done" for one in gpu["sections"].SECTIONS
    }
    assert (tmp_path / "out.profile.txt").read_text().count("== ") >= 6
