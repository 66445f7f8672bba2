"""Power files: energy by hand, damaged files, where they are looked for, and how energy is shown."""

import json
import random
import tracemalloc
from pathlib import Path

import pytest

from common.record import CONVERSION_EFFICIENCY, POWER_READING, POWER_START, POWER_STOP
from compliance.engine import Options, check_paths
from compliance.formats import FORMATS
from compliance.formats.style import Style
from compliance.logs.power import (
    ESTIMATE,
    equal_readings,
    read_power,
    shared_readings,
)
from compliance.model.layout import discover
from compliance.samples.log import varied
from compliance.samples.package import SamplePackage, SamplePower

SCHEMA = Path(__file__).resolve().parents[3] / "docs/reference/report.schema.json"
RUN_MS = (1_700_000_000_000, 1_700_000_100_000)  # a run of 100 s


def written(folder, name, *records):
    file = SamplePower(*RUN_MS, name)
    for key, value, second in records:
        file.add(key, value, RUN_MS[0] + second * 1000)
    path = folder / f"{name}.txt"
    path.write_bytes(file.bytes())
    return str(path)


def readings(watts, first=1, last=100):
    return [(POWER_READING, watts, second) for second in range(first, last + 1)]


def power_findings(report, severity="error"):
    return {f.rule for f in report.findings if f.rule.startswith("POW") and f.severity == severity}


PTDAEMON = "Time,28-12-2020 15:21:14.682,Watts,22.950000,Volts,228.570000,Amps,0.206430,PF,0.486400,Mark,notset\n"


@pytest.mark.parametrize("value", [-3.5, "n/a", None])
def test_a_channel_of_invalid_readings_is_reported_once(value, tmp_path):
    def invalidate(file):
        for record in file.records:
            record["value"] = value if record["key"] == POWER_READING else record["value"]

    report = check_paths([SamplePackage("deepcam").power(node=invalidate).write(tmp_path)], Options())
    assert power_findings(report) == {"POW11"}


def test_a_log_of_ptdaemon_is_named(tmp_path):
    package = SamplePackage("deepcam").power().file("power/result_1/node_0.txt", PTDAEMON * 100)
    report = check_paths([package.write(tmp_path)], Options())
    (finding,) = (finding for finding in report.findings if finding.rule == "POW05")
    assert "PTDaemon" in finding.message and "ms since 1970" in finding.fix


def test_energy_is_what_nodes_and_switches_drew_during_the_run(tmp_path):
    one = written(
        tmp_path,
        "node_0",
        (POWER_START, None, 0),
        (CONVERSION_EFFICIENCY, 0.9, 0),
        *readings(300),
        (POWER_STOP, None, 100),
    )
    # Before and after the run it draws something else; in it 100 W for 50 s, then 200 W.
    outside = (*readings(7, -9, 0), *readings(100, 1, 50), *readings(200, 51, 100), *readings(9, 101, 110))
    two = written(tmp_path, "node_1", (POWER_START, None, -10), *outside, (POWER_STOP, None, 110))
    switch = written(tmp_path, "sw_0", (ESTIMATE, 40, 0), (CONVERSION_EFFICIENCY, 0.5, 0))
    power = read_power([one, two], [switch], *RUN_MS)
    assert [log.joules for log in power.nodes] == pytest.approx([0.9 * 300 * 100, 100 * 50 + 200 * 50])
    assert power.switches[0].joules == pytest.approx(0.5 * 40 * 100)
    assert power.joules == pytest.approx(27_000 + 15_000 + 2_000)


@pytest.mark.parametrize(
    "records",
    [
        [],
        readings(300),
        [(POWER_START, None, 0), *readings(300, 1, 50), (POWER_READING, "x", 51), *readings(300, 52)],
        [(POWER_START, None, 0), *readings(300, 1, 50), *readings(300, 10)],
        [(POWER_START, None, 0), (CONVERSION_EFFICIENCY, 3, 0), *readings(300)],
        [(POWER_START, None, 200), *readings(300, 201, 300)],
        [(POWER_START, None, 0), *readings(1e308), (POWER_STOP, None, 100)],
    ],
    ids=["empty", "no start", "no number", "time back", "efficiency", "another time", "too much"],
)
def test_there_is_no_energy_where_it_cannot_be_known(records, tmp_path):
    node = written(tmp_path, "node_0", *records)
    assert read_power([node], [], *RUN_MS).joules is None
    assert read_power([], [], *RUN_MS).joules is None
    good = written(tmp_path, "node_1", (POWER_START, None, 0), *readings(300))
    assert read_power([good], [], None, None).joules is None
    assert read_power([good], [], *RUN_MS).joules == pytest.approx(30_000)


def test_damaged_files_never_raise(tmp_path):
    whole = SamplePower.node(*RUN_MS, 0).bytes()
    path, chance = tmp_path / "node_0.txt", random.Random(6)
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(chance.choice((1, 5, 40))):
            at = chance.randrange(len(data))
            data[at : at + chance.choice((0, 1, 9))] = chance.choice(
                (b"", b"-", b"9" * 400, b"\xff", b"NaN", b"\n", b"{")
            )
        path.write_bytes(data[: chance.choice((len(data), chance.randrange(len(data))))])
        read_power([str(path)], [str(path)], *RUN_MS)
    for path in (tmp_path, tmp_path / "missing"):
        assert read_power([str(path)], [], *RUN_MS).nodes[0].problems


def test_memory_does_not_grow_with_the_measurement(tmp_path):
    path, stop_ms = tmp_path / "node_0.txt", RUN_MS[0] + 30_000_000
    path.write_bytes(SamplePower.node(RUN_MS[0], stop_ms, 0).bytes())
    tracemalloc.start()
    power = read_power([str(path)], [], RUN_MS[0], stop_ms)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert power.nodes[0].readings == 30_000 and power.joules is not None
    assert peak < 16 << 20  # kept as records, 30,000 readings would take some 40 MiB


def test_a_result_has_the_mean_energy_of_the_runs_that_its_time_is_the_mean_of(tmp_path):
    package = SamplePackage("deepcam", epochs=[9, 10, 11, 12, 30]).power()
    results = check_paths([package.write(tmp_path / "Example")], Options()).sets[0]
    joules = [run.energy_joules for run in sorted(results.runs, key=lambda run: run.minutes)]
    assert results.energy_joules == pytest.approx(sum(joules[1:4]) / 3)
    # The run that misses the target is the slowest, whatever its time.
    package.edit(1, lambda log: log.last_evaluation(0.1))
    results = check_paths([package.write(tmp_path / "Example")], Options()).sets[0]
    assert results.energy_joules == pytest.approx(sum(joules[2:5]) / 3)


def test_a_throughput_result_has_the_energy_of_all_models(tmp_path):
    package = SamplePackage("deepcam", scaling="weak", runs=6).power().prune(1)
    results = check_paths([package.write(tmp_path / "Example")], Options()).sets[0]
    assert results.energy_joules == pytest.approx(sum(run.energy_joules for run in results.runs))
    assert len(results.runs) == 6 and results.pruned[0].power is None


def test_without_power_nothing_is_said(tmp_path):
    report = check_paths([SamplePackage("deepcam").write(tmp_path / "Example")], Options())
    assert not [finding for finding in report.findings if finding.rule.startswith("POW")]
    assert report.sets[0].power is None and report.sets[0].energy_joules is None
    assert "energy" not in FORMATS["text"](report, Style())


@pytest.mark.parametrize("profile", ["strict", "official"])
def test_a_measured_package_passes_and_shows_its_energy(profile, tmp_path):
    jsonschema = pytest.importorskip("jsonschema")
    report = check_paths([SamplePackage("deepcam").power().write(tmp_path / "Example")], Options(profile=profile))
    assert report.verdict == "PASS" and not power_findings(report)
    for name in ("text", "markdown"):
        assert "kJ" in FORMATS[name](report, Style())
    document = json.loads(FORMATS["json"](report, Style()))
    assert not list(jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).iter_errors(document))
    assert document["sets"][0]["score"]["energy_joules"] > 0 and document["logs"][0]["energy_joules"] > 0


def test_a_failing_run_may_lack_power_since_its_energy_does_not_count(tmp_path):
    package = SamplePackage("deepcam").power().edit(2, lambda log: log.last_evaluation(0.1))
    package.remove(f"{package.folder}/power/result_2")
    report = check_paths([package.write(tmp_path / "Example")], Options())
    assert power_findings(report) == set() and power_findings(report, "warning") == {"POW01"}
    assert report.sets[0].energy_joules is not None


def test_one_finding_for_all_nodes_of_a_run(tmp_path):
    package = SamplePackage("deepcam").power(margin_ms=-5000, nodes=3)
    report = check_paths([package.write(tmp_path / "Example")], Options())
    late = [f for f in report.findings if f.rule == "POW06" and f.key == POWER_START]
    assert len(late) == 5 and "2 other power files" in late[0].message


def test_power_files_of_a_loose_folder_are_no_logs(tmp_path):
    package = SamplePackage("deepcam").power()
    package.move(package.folder, "runs").remove("systems").remove("results").write(tmp_path)
    assert [len(place.logs) for place in discover([str(tmp_path)]).folders] == [5]
    report = check_paths([tmp_path], Options())
    assert report.sets[0].loose and report.sets[0].energy_joules > 0


# -- copies ------------------------------------------------------------------------------------------------


WATTS = [400 + round(13 * varied(at), 3) for at in range(900)]


def read_node(folder, file):
    """Write the file of a node, and return what is read of it."""
    path = folder / f"node_{file.start_ms}.txt"
    path.write_bytes(file.bytes())
    return read_power([str(path)], [], file.start_ms, file.stop_ms).nodes[0]


def measurement(tmp_path, watts, start_ms=1_694_000_000_000):
    file = SamplePower(start_ms, start_ms + 1000 * len(watts), "node_0").add(POWER_START, None, start_ms)
    for at, value in enumerate(watts):
        file.add(POWER_READING, value, start_ms + 1000 * at)
    return read_node(tmp_path, file.add(POWER_STOP, None, file.stop_ms))


def test_readings_of_another_time_are_recognised(tmp_path):
    one = measurement(tmp_path, WATTS)
    assert shared_readings(one, measurement(tmp_path, WATTS[200:], 1_695_000_000_000))
    other = [400 + round(13 * varied(at, "other"), 3) for at in range(900)]
    assert not shared_readings(one, measurement(tmp_path, other, 1_695_000_000_000))


@pytest.mark.parametrize(("factor", "more", "digits"), [(1, 0, 1), (1, 3, 3), (1.01, 0, 1)])
def test_slightly_changed_readings_are_recognised(factor, more, digits, tmp_path):
    changed = [round(factor * value + more, digits) for value in WATTS[200:]]
    one, other = measurement(tmp_path, WATTS), measurement(tmp_path, changed, 1_695_000_000_000)
    assert shared_readings(one, other) and not equal_readings(one, other)


@pytest.mark.parametrize("size", [10**307, 1e307, 1e-310])
def test_readings_of_any_size_are_compared(tmp_path, size):
    watts = [size * (1 + at * at % 17) for at in range(900)]
    one, other = (measurement(tmp_path, watts, start_ms) for start_ms in (1_694_000_000_000, 1_695_000_000_000))
    assert isinstance(shared_readings(one, other), bool)


def test_nodes_that_do_the_same_work_have_readings_of_their_own(tmp_path):
    def node(number):
        return [2400 + 100 * varied(at) + round(3 * varied(at, number), 3) for at in range(900)]

    assert not shared_readings(measurement(tmp_path, node(0)), measurement(tmp_path, node(1), 1_695_000_000_000))


def test_meters_of_whole_watts_agree_by_chance(tmp_path):
    def node(number):
        noise = [10 * varied(at, number) for at in range(930)]
        return [round(2400 + sum(noise[at : at + 30]) / 10) for at in range(900)]

    assert not shared_readings(measurement(tmp_path, node(0)), measurement(tmp_path, node(1), 1_695_000_000_000))


def test_nearly_constant_power_proves_nothing(tmp_path):
    assert not measurement(tmp_path, [400 + (at % 90 == 0) for at in range(900)]).sketch


@pytest.mark.parametrize(
    ("metadata", "host", "of_parts"),
    [
        ({"host": "node_0"}, '"node_0"', ""),
        ({"host": None}, "", ""),
        ({"host": ["node_0"]}, "", ""),
        ({"source": "ipmi"}, "", ""),
        *(({"source": name}, "", f'source "{name}"') for name in ("RAPL", "dcgm:0", "nvidia-smi", "powercap")),
    ],
)
def test_where_and_by_what_a_node_was_measured(metadata, host, of_parts, tmp_path):
    file = SamplePower(*RUN_MS, "").add(POWER_START, None, RUN_MS[0])
    file.records[0]["metadata"] = metadata
    log = read_node(tmp_path, file)
    assert (log.host, log.of_parts) == (host, of_parts)
