"""bench/gpu.py: the runner with sections that fail or hang, its page and references, and a dry run of both parts."""

import inspect
import json
import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import common.candidate
from common.config import load
from common.installed import find_config
from common.training.profile import count_sample
from cosmoflow.model import CosmoFlow
from cosmoflow.model import ModelConfig as CosmoFlowConfig
from deepcam.model import DeepLab
from deepcam.model import ModelConfig as DeepCamConfig
from tests.problems import ROOT, run_process

pytestmark = pytest.mark.exhaustive

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
    bench.dry = False
    assert bench.lacks_time(1e6, "step", network="oc20", batch=1, variant="long")
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
    """Import the modules of the script."""
    monkeypatch.syspath_prepend(BENCH)
    monkeypatch.syspath_prepend(ROOT)  # before the scripts, which have names of packages
    before = set(sys.modules)
    names = "candidates cases networks page references runner sections steps training variants"
    yield SimpleNamespace(**{name: import_module(f"gpu.{name}") for name in names.split()})
    for name in set(sys.modules) - before:
        if name.partition(".")[0] == "gpu":
            del sys.modules[name]


def run(*arguments):
    done = run_process(*COMMAND, *arguments)
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
    for name in "__init__ background cases child clock networks page results runner sections variants".split():
        (copy / "gpu" / f"{name}.py").write_text((BENCH / "gpu" / f"{name}.py").read_text())
    for name in ("common", "cosmoflow", "deepcam", "oc20", "constraints.txt"):
        (tmp_path / name).symlink_to(ROOT / name)
    (copy / "gpu.py").write_text((BENCH / "gpu.py").read_text())
    (copy / "gpu" / "made.py").write_text(MODULE)
    sections = (f'Section("{name}", "made:{name}", 1, {limit}, "", "", gate=True)' for name, limit in LIMITS.items())
    with (copy / "gpu" / "sections.py").open("a") as file:
        file.write(f"\nNAMES = ()\nSECTIONS = ({', '.join(sections)})\nPARTS = {{'first': {tuple(LIMITS)!r}}}\n")
    return [sys.executable, copy / "gpu.py", "--dry-run", "-o", tmp_path / "out"]


LIMITS = {"bad": 60, "slow": 4, "good": 60}


def test_sections_that_fail_or_hang_end_alone_and_what_they_found_is_kept(three_sections, tmp_path):
    text = (tmp_path / "bench/gpu/runner.py").read_text()
    (tmp_path / "bench/gpu/runner.py").write_text(text.replace("900.0 if self.dry else ", ""))
    part = [*three_sections, "--part", "first"]
    done = run_process(*part)
    results = tmp_path / "out/first.json"
    found = json.loads(results.read_text())["sections"]
    assert done.returncode == 1, done.stderr
    assert {name: one["status"] for name, one in found.items()} == {"bad": "failed", "slow": "overran", "good": "done"}
    wrong, error, late = found["bad"]["rows"]
    assert wrong["wrong"] == "relative_error is nan" and "ms" not in wrong
    assert error["error"].startswith("RuntimeError: out of memory") and found["bad"]["error"] == "the driver is gone"
    assert "it needs 1000000" in late["late"]
    assert done.stdout.index("NOT RIGHT: bad") < done.stdout.index("good ")  # at once
    kept, hangs = found["slow"]["rows"]
    assert kept["ms"] == 1.0 and hangs["under_way"]
    assert found["good"]["rows"][0]["ms"] == 5.0  # the rows of earlier sections
    log = (tmp_path / "out/first.log").read_text()
    assert ends(int(log.partition("== slow\n")[2].splitlines()[0]))
    # Again: only what is not done.
    results.write_text(results.read_text().replace('"overran"', '"done"').replace('"failed"', '"done"'))
    assert "NOT RIGHT" not in run_process(*part).stdout
    # Other sections, in the order asked for, know what was measured before, and have a file of their own.
    run_process(*three_sections, "--sections", "good", "bad")
    other = json.loads((tmp_path / "out/sections.json").read_text())["sections"]
    assert list(other) == ["good", "bad"] and other["good"]["rows"][0]["ms"] == 6.0
    assert len(list((tmp_path / "out").iterdir())) <= 8


def test_a_part_that_is_ended_keeps_its_rows_and_leaves_no_section_behind(three_sections, tmp_path):
    text = (tmp_path / "bench/gpu/runner.py").read_text()
    (tmp_path / "bench/gpu/runner.py").write_text(text.replace("TICK_S: Final = 10.0", "TICK_S: Final = 0.2"))
    with subprocess.Popen([*three_sections, "--sections", "slow"], stdout=subprocess.PIPE) as process:
        rows = tmp_path / "out/sections.json"
        for _ in range(600):
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            if rows.exists() and "hangs" in rows.read_text() and children:
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
    assert children and all(map(ends, children))
    kept = json.loads(rows.read_text())["sections"]["slow"]
    assert kept["status"] == "under way" and kept["rows"][0]["ms"] == 1.0


def test_a_part_without_time_says_what_it_left_out(tmp_path):
    given = ("--part", "first", "-o", tmp_path, "--budget", 1, "--work", tmp_path / "work")
    status, text = run(*given)
    assert status == 2 and "--dry-run walks the same sections" in text  # there is no GPU
    status, text = run(*given, "--dry-run")
    found = json.loads((tmp_path / "first.json").read_text())
    assert status == 1 and "ceilings            skipped" in text
    assert {one["status"] for one in found["sections"].values()} == {"skipped"}
    assert "hostname" not in found["machine"] and os.uname().nodename not in json.dumps(found)
    for content, words in (({"a": 1}, "expected results"), (found | {"machine": {"device": "other"}}, "is of device")):
        (tmp_path / "first.json").write_text(json.dumps(content))
        status, text = run(*given, "--dry-run")
        assert status == 2 and words in text and json.loads((tmp_path / "first.json").read_text()) == content


@pytest.mark.parametrize("name", ["crc32c", "h5py", "mlperf_logging", "msgspec", "tqdm", "triton", "yaml"])
def test_the_runner_starts_without_packages_that_sections_need(name):
    code = f"""
import runpy, sys
sys.modules[{name!r}] = None
sys.path.insert(0, {str(BENCH)!r})
sys.path.insert(0, {str(ROOT)!r})
from gpu.runner import describe_machine
assert describe_machine(True)["torch"]
import gpu.ceilings, gpu.child
sys.argv = ["gpu.py", "--plan"]
runpy.run_path({str(BENCH / "gpu.py")!r}, run_name="__main__")
"""
    done = run_process(sys.executable, "-c", code)
    assert done.returncode == 0 and "in no part" in done.stdout, done.stderr


def test_wrong_use_is_refused():
    assert run("--part", "third")[0] == 2
    status, text = run("--part", "first", "--dry-run")
    assert status == 2 and "-o DIR is missing" in text


def test_the_plan_fits_the_time_of_a_lent_machine_and_its_functions_exist(gpu):
    for part, names in gpu.sections.PARTS.items():
        chosen = gpu.sections.select_sections(names)
        assert sum(section.seconds for section in chosen) + gpu.runner.RESERVE_S <= gpu.sections.BUDGETS_S[part] <= 600
        assert all(section.seconds <= section.limit_s and section.decides for section in chosen)
    assert gpu.sections.START_S + sum(gpu.sections.BUDGETS_S.values()) <= gpu.sections.LENT_S
    for section in gpu.sections.SECTIONS:
        module, _, function = section.place.partition(":")
        assert f"def {function}(bench: Bench)" in (BENCH / "gpu" / f"{module}.py").read_text(), section.place


def test_all_variants_are_configurations(gpu):
    variants = {name: one for name, one in vars(gpu.variants).items() if isinstance(one, gpu.variants.Variant)}
    for network, benchmark in gpu.training.BENCHMARKS.items():
        for name, variant in variants.items():
            if variant.candidates:
                continue  # their keys may be those of a configuration that is tried, too
            if gpu.variants.FUSED["kernels"] in variant.model.values() and network != "cosmoflow":
                continue
            if variant.model if network == "deepcam" else gpu.variants.COMPILE in variant.keys:
                continue
            keys = ["submission.division=open", "data.data_dir=d", *variant.overrides]
            assert load(benchmark.config, find_config(network, "config"), keys), name
        keys = [*gpu.variants.CONVERGING[network].overrides, *gpu.training.OWN_KEYS.get(network, ())]
        assert load(benchmark.config, find_config(network, "mini"), keys)


ROW = {"network": "cosmoflow", "batch": 16, "ms": 10.0, "ms_again": 10.5, "per_s": 1600.0, "memory_mb": 9000.0}
ROW |= {"what": "step", "host_ms": 2.0, "wait_share": 0.0, "waits": 0}


def test_rates_are_compared_with_the_same_card_and_batch_and_are_of_what_the_suite_has(gpu):
    variants, network = gpu.variants, gpu.networks.COSMOFLOW
    rows = [
        ROW | {"variant": variant.name, "batch": batch, "per_s": rate}
        for batch in (1, 16)
        for variant, rate in (
            (variants.PLAIN, 500.0),  # launched
            (variants.GRAPHS, 300.0),
            (variants.BLOCK_GRAPHS, 650.0),
            (variants.BLOCK_GRAPHS.with_candidates("cosmoflow-halves"), 700.0),
            (variants.NARROW, 900.0),  # removed
        )
    ]
    one, more = gpu.page.best_rates(network, rows, "NVIDIA H100 80GB HBM3")
    assert one.row["per_s"] == more.row["per_s"] == 650.0 and one.torch["per_s"] == 300.0
    assert [result.gpus for result in one.published] == [32, 512] and not more.published
    assert not any(rate.published for rate in gpu.page.best_rates(network, rows, "NVIDIA H200"))
    lines = "\n".join(gpu.page.rate_lines(network, [one, more], gpu.networks.Ceilings()))
    assert "2.91 × of 32" in lines and lines.count("2.2 ×") == 2 and lines.count(" × of ") == 2


def test_the_gain_of_an_option_is_of_pairs_of_one_run(gpu):
    (option,) = (one for one in gpu.variants.OPTIONS if one.key == "compile=auto")
    like = ROW | {"network": "deepcam", "batch": 8}
    compiled = like | {"variant": gpu.variants.COMPILED.name, "ms_again": 9.0}
    runs = [[like | {"variant": gpu.variants.GRAPHS.name}, compiled | {"ms": ms}] for ms in (8.0, 9.0)]
    assert "deepcam" not in gpu.page.describe_option(option, runs)  # it has no other network
    assert "10.0 to 20.0 % at 8" in gpu.page.describe_option(option, runs)
    assert "not measured" in gpu.page.describe_option(option, [runs[0][:1], runs[1][1:]])


def test_losses_of_the_first_steps_are_compared_or_said_not_to_be(gpu):
    plain = ROW | {"network": "deepcam", "batch": 8, "variant": gpu.variants.UNTUNED.name, "losses": [1.0, 0.5]}
    compiled = plain | {"variant": gpu.variants.COMPILED_UNTUNED.name, "losses": [1.001, 0.5, 9.0]}

    def compare(row, *known):
        found = lambda what, **names: next((one for one in known if names.items() <= one.items()), None)  # noqa: E731
        return gpu.training.compare_losses(SimpleNamespace(found=found), row)

    assert compare(compiled, plain) == plain["variant"] and compiled["losses_apart"] < 1e-3
    assert compare(compiled) == compare(plain, plain) == gpu.training.NOT_CHECKED
    assert compare(compiled, plain | {"wrong": "other"}) == gpu.training.NOT_CHECKED
    with pytest.raises(gpu.cases.WrongError, match="mean loss of 2 steps"):
        compare(compiled | {"losses": [1.1, 0.5]}, plain)


def test_a_candidate_that_there_is_not_is_an_error_of_its_own(gpu, candidate):
    with gpu.candidates.switch_on([candidate.name]):
        assert candidate.enabled
    assert not candidate.enabled
    with pytest.raises(RuntimeError, match="no such candidate: nobody"), gpu.candidates.switch_on(["nobody"]):
        pass


@pytest.fixture
def candidate(monkeypatch):
    monkeypatch.setattr(common.candidate, "_BY_NAME", common.candidate._BY_NAME.copy())
    return common.candidate.Candidate("of-a-test")


def test_the_floors_are_of_what_the_networks_do(gpu):
    with torch.device("meta"):
        cosmoflow, deepcam = CosmoFlow(CosmoFlowConfig(), (128, 128, 128, 4)), DeepLab(DeepCamConfig(), 16)
        universe, snapshot = torch.empty(1, 128, 128, 128, 4), torch.empty(1, 768, 1152, 16)
    assert count_sample(cosmoflow, universe).training == pytest.approx(gpu.networks.COSMOFLOW.flop, rel=1e-3)
    assert count_sample(deepcam, snapshot).training == pytest.approx(gpu.networks.DEEPCAM.flop, rel=3e-3)


@pytest.mark.parametrize("name", ["cosmoflow", pytest.param("oc20", marks=pytest.mark.exhaustive)])
def test_references_accept_the_network_and_refuse_a_wrong_one(gpu, name, monkeypatch):
    errors = gpu.references.compare(name, {}, "fp32", torch.device("cpu"))
    assert 0 < errors["output_error"] < 1e-5

    def scaled(model):
        filled = fill(model)
        with torch.no_grad():
            [*filled.parameters()][-1].mul_(1.1)
        return filled

    fill, checksum = gpu.references.fill, gpu.references.reference(name, False)["checksum"]
    monkeypatch.setattr(gpu.references, "checksum", lambda *_: checksum)
    monkeypatch.setattr(gpu.references, "fill", scaled)
    with pytest.raises(gpu.cases.WrongError):
        gpu.references.compare(name, {}, "fp32", torch.device("cpu"))


def test_references_of_other_weights_are_not_compared(gpu, monkeypatch):
    draw = gpu.references.np.random.RandomState
    monkeypatch.setattr(gpu.references, "draw", lambda seed: draw(seed + 1))
    with pytest.raises(RuntimeError, match="make it again"):
        gpu.references.compare("cosmoflow", {}, "fp32", torch.device("cpu"))


def test_references_stay_small():
    assert sum(path.stat().st_size for path in (BENCH / "gpu_references").iterdir()) < 10e6


def test_torch_has_what_only_a_gpu_needs():
    assert "capture_error_mode" in inspect.signature(torch.cuda.graph).parameters
    names = "CUDAGraph Event empty_cache max_memory_reserved reset_peak_memory_stats set_sync_debug_mode synchronize"
    assert [name for name in names.split() if not hasattr(torch.cuda, name)] == []


@pytest.mark.usefixtures("untraced")
def test_a_dry_run_makes_every_case_of_both_parts(gpu, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for part, names in gpu.sections.PARTS.items():
        _, text = run("--part", part, "--dry-run", "-o", "out", "--work", tmp_path / "work")
        found = json.loads((tmp_path / f"out/{part}.json").read_text())["sections"]
        assert list_faults(gpu, found) == [], text
        assert {name: one["status"] for name, one in found.items()} == dict.fromkeys(names, "done")
        assert (tmp_path / f"out/{part}.profile.txt").read_text().count("== ") >= 1
    assert len(list((tmp_path / "out").iterdir())) <= 8


@pytest.mark.usefixtures("untraced")
def test_a_dry_run_makes_every_case_of_the_other_sections(gpu, tmp_path):
    planned = {name for names in gpu.sections.PARTS.values() for name in names}
    names = [section.name for section in gpu.sections.SECTIONS if section.name not in planned]
    _, text = run("--sections", *names, "--dry-run", "-o", tmp_path / "out", "--work", tmp_path / "work")
    found = json.loads((tmp_path / "out/sections.json").read_text())["sections"]
    assert list_faults(gpu, found) == [], text
    assert {name: one["status"] for name, one in found.items()} == dict.fromkeys(names, "done")


def list_faults(gpu, sections):
    """Return the faults of rows, but for candidates that there are not."""
    faults = [gpu.page.describe_fault(row) for section in sections.values() for row in section["rows"]]
    return [fault for fault in faults if fault and "no such candidate" not in fault]
