"""Further packages on which the rules about results and packages prove themselves.

Each row is (rule, severities of its findings, package).
"""

import math

from common.record import CONVERSION_EFFICIENCY, PARTS_SCOPE, POWER_START
from common.version import DISTRIBUTION
from compliance.model.layout import PROVENANCE_FILE
from compliance.rules.convergence import DECAY_FACTOR, RATE, WARMUP_FACTOR
from compliance.rules.implementations import SAMPLE_CODE, SAMPLE_LINK
from compliance.rules.power import move_power_file
from compliance.rules.privacy import LETTERS

NAMELESS = ("submission_org", "SUBMISSION_ORG_PLACEHOLDER")


def add_a_day(time_ms):
    return time_ms + 86_400_000


def wave_times(time_ms):
    """Return a time of another run that took as long."""
    return int(time_ms + 300_000 * math.sin(time_ms / 700_000))


def imitate(file):
    """Give a node the readings of the first one; return its file."""
    file.records = file.node(file.start_ms, file.stop_ms, 0).records
    return file


def shorten_later(time_ms):
    """Return a time of a run that is three percent shorter, two years later."""
    return round(time_ms * 0.97) + 60_000_000_000


EXAMPLES = (
    ("RCP01", "note", lambda package: package(settings={"global_batch_size": 256}, epochs=[14] * 7 + [15] * 3)),
    ("RCP01", "error", lambda package: package(epochs=9)),
    ("RCP01", "error", lambda package: package(settings={"global_batch_size": 768})),
    ("RCP01", "error", lambda package: package(settings={"global_batch_size": 4096})),
    ("RCP04", "", lambda package: package(settings={RATE: 0.012, WARMUP_FACTOR: 2})),
    ("RCP04", "", lambda package: package(settings={DECAY_FACTOR: 0.5})),
    ("RCP06", "warning", lambda package: package().waive("3.0/Example/example_n64/strong/cosmoflow")),
    ("RCP07", "warning", lambda package: package().file("scaling.json", '{"scaling_factor": 1.05}')),
    ("RCP07", "warning", lambda package: package().file("scaling.json", "[1.05]")),
    ("RCP07", "warning", lambda package: package().file("scaling.json", '{"factor": 1.05}')),
    ("RCP07", "warning", lambda package: package().file("scaling.json", '{"scaling_factor": NaN}')),
    ("RCP07", "warning", lambda package: package().file("scaling.json", '{"scaling_factor": 0.5}')),
    ("RUN03", "error", lambda package: package().edit(1, lambda log: log.set("seed", "lucky"))),
    ("RUN03", "error", lambda package: package(round_="2.0").edit(1, lambda log: log.set("seed", "lucky"))),
    (
        "RUN04",
        "error",
        lambda package: package().edit(2, lambda log: log.set("seed", "1001").meta("seed", "lineno", 7)),
    ),
    ("RUN04", "error", lambda package: package().edit(2, lambda log: log.double("seed", value=1001))),
    ("RUN04", "warning", lambda package: package().edit(2, lambda log: log.double("seed"))),
    ("RUN05", "error", lambda package: package().system(division="Closed").copy(1, 2)),
    ("RUN05", "error", lambda package: package().copy(1, 2).edit(2, lambda log: log.set("seed", 4711))),
    (
        "RUN05",
        "error",
        lambda package: package().copy(1, 2).edit(2, lambda log: log.set("seed", 4711).times(add_a_day)),
    ),
    (
        "RUN05",
        "error",
        lambda package: package().copy(1, 2).edit(2, lambda log: log.set("seed", 4711).times(shorten_later)),
    ),
    (
        "RUN12",
        "error",
        lambda package: package().copy_to("other_system").edit(1, lambda log: log.times(shorten_later)),
    ),
    (
        "RUN05",
        "warning",
        lambda package: package(division="open").copy(1, 2).edit(2, lambda log: log.times(wave_times)),
    ),
    (
        "RUN05",
        "warning",
        lambda package: package().copy(1, 2).edit(2, lambda log: log.set("seed", 4711).times(wave_times)),
    ),
    (
        "RUN12",
        "error warning",
        lambda package: package().copy_to("other_system").edit(1, lambda log: log.times(wave_times)),
    ),
    ("RUN05", "warning", lambda package: package().edit_all(lambda log: log.evaluation(0, 0.12345678901), count=2)),
    ("RUN05", "", lambda package: package().edit_all(lambda log: log.evaluation(0, 0.1234), count=2)),
    (
        "RUN05",
        "",
        lambda package: package(scaling="weak").edit_all(lambda log: log.evaluation(0, 0.12345678901), count=2),
    ),
    ("RUN05", "warning", lambda package: package(round_="0.7").copy(1, 2).edit(2, lambda log: log.times(wave_times))),
    ("PKG08", "warning", lambda package: package().move("benchmarks/cosmoflow", "benchmarks/oc20")),
    ("PKG08", "warning", lambda package: package().replace("benchmarks/cosmoflow/implementations/torch/train.py", b"")),
    (
        "PKG37",
        "warning",
        lambda package: package().edit_all(lambda log: log.meta("run_stop", "file", "/home/x/edit_logs.py")),
    ),
    ("PKG25", "error", lambda package: package().replace("benchmarks/cosmoflow/example_n64/setup.sh", b"\x7fELF\0\0")),
    ("PKG10", "warning", lambda package: package().replace("docs/a.md", b"x").replace("docs/A.md", b"x")),
    ("PKG10", "", lambda package: package().replace("docs/a.md", b"x").replace("other/A.md", b"x")),
    (
        "PKG07",
        "error",
        lambda package: (
            package()
            .system(division="open")
            .change("systems/example_n64.json", lambda text: text[:-2] + b', "division": "closed"}')
        ),
    ),
    ("PKG37", "error", lambda package: package().by_suite().remove(f"{SAMPLE_CODE}/cosmoflow")),
    ("PKG37", "error", lambda package: package().by_suite().remove("benchmarks").code("jax")),
    (
        "PKG37",
        "warning",
        lambda package: package(division="open").by_suite().replace(f"{SAMPLE_CODE}/common/more.py", b""),
    ),
    ("PKG38", "", lambda package: package().replace(PROVENANCE_FILE, b'{"author": "somebody else"}')),
    ("PKG38", "warning", lambda package: package().record_files().remove("benchmarks/cosmoflow/example_n64/setup.sh")),
    ("PKG38", "note", lambda package: package().record_files().replace("README.md", b"")),
    ("PKG38", "warning", lambda package: package().replace(PROVENANCE_FILE, b'{"files": {}, "logs": {}}')),
    ("PKG38", "warning", lambda package: package().replace(PROVENANCE_FILE, b"{")),
    ("PKG38", "warning", lambda package: package().replace(PROVENANCE_FILE, b'{"files": {}, "logs": []}')),
    ("PKG38", "", lambda package: package().replace(PROVENANCE_FILE, b'{"files": {}}')),
    ("PKG38", "", lambda package: package().replace(PROVENANCE_FILE, b"[1]")),
    ("PKG25", "warning", lambda package: package().remove("benchmarks/cosmoflow/example_n64/setup.sh")),
    ("PKG25", "warning", lambda package: package().replace("benchmarks/cosmoflow/example_n64/README.md", b"")),
    ("PKG26", "error", lambda package: package().remove("benchmarks/cosmoflow/implementations/torch")),
    ("PKG26", "error", lambda package: package().code("jax")),
    ("PKG26", "error", lambda package: package().replace(SAMPLE_LINK, b"{,}")),
    ("PKG26", "warning", lambda package: package().replace(SAMPLE_LINK, b"{}")),
    ("PKG26", "error", lambda package: package().replace(SAMPLE_LINK, b'{"implementation": "jax"}')),
    ("PKG27", "warning", lambda package: package().replace("benchmarks/cosmoflow/other_n1/setup.sh", b"#!/bin/sh\n")),
    ("PKG27", "warning", lambda package: package().replace("benchmarks/oc20/implementations/torch/train.py", b"x")),
    (
        "PKG25",
        "warning",
        lambda package: package().replace("benchmarks/cosmoflow/example_n64/setup.sh", b"echo done\n"),
    ),
    (
        "PKG25",
        "warning",
        lambda package: package().replace("benchmarks/cosmoflow/example_n64/setup.sh", b"#!/bin/sh\r\nls\r\n"),
    ),
    ("POW05", "error", lambda package: package("deepcam").power().file("power/result_1/sw_0.txt", ":::MLLOG {")),
    ("POW05", "error", lambda package: package("deepcam").power(node=lambda file: file.shift(float("nan"), 9, 10))),
    ("POW05", "error", lambda package: package("deepcam").power().link("power/result_1/sw_1.txt", "nowhere")),
    (
        "POW06",
        "warning",
        lambda package: package("deepcam").power(node=lambda file: file.drop("power_measurement_stop")),
    ),
    (
        "POW06",
        "error",
        lambda package: package("deepcam").power(node=lambda file: file.add(POWER_START, None, file.stop_ms)),
    ),
    ("POW06", "error", lambda package: package("deepcam").power(node=lambda file: file.shift(9000))),
    ("POW06", "error", lambda package: package("deepcam").power(node=lambda file: file.shift(7_200_000))),
    ("POW06", "warning", lambda package: package("deepcam").power(margin_ms=60_000)),
    (
        "POW08",
        "warning",
        lambda package: package("deepcam").power(node=lambda file: file.keep(lambda at, _: not 20 < at < 24)),
    ),
    (
        "POW08",
        "error",
        lambda package: package("deepcam").power(node=lambda file: file.keep(lambda at, _: not 20 < at < 40)),
    ),
    ("POW08", "error", lambda package: package("deepcam").power(node=lambda file: file.drop("power_reading"))),
    ("POW08", "warning", lambda package: package("deepcam").power(node=lambda file: file.shift(-1900, 50, 51))),
    ("POW08", "error", lambda package: package("deepcam").power(node=lambda file: file.shift(3_600_000, 0, 1))),
    (
        "POW11",
        "error",
        lambda package: package("deepcam").power(node=lambda file: file.set("power_reading", float("nan"), 30)),
    ),
    (
        "POW11",
        "error",
        lambda package: package("deepcam").power(node=lambda file: file.set("power_reading", "420", 30)),
    ),
    (
        "POW11",
        "warning",
        lambda package: package("deepcam").power(
            node=lambda file: file.convert(lambda watts: [each * 0.001 for each in watts])
        ),
    ),
    (
        "POW11",
        "warning",
        lambda package: package("deepcam").power(
            node=lambda file: file.convert(lambda watts: [each * 0.1 for each in watts])
        ),
    ),
    (
        "POW11",
        "warning",
        lambda package: package("deepcam").power(node=lambda file: file.convert(lambda watts: [420.0] * len(watts))),
    ),
    ("POW11", "error", lambda package: package("deepcam").power(node=lambda file: file.set("conversion_eff", 94))),
    ("POW11", "error", lambda package: package("deepcam").power(node=lambda file: file.set("conversion_eff", "0.94"))),
    ("POW11", "warning", lambda package: package("deepcam").power(node=lambda file: file.set("conversion_eff", 0.5))),
    (
        "POW11",
        "error",
        lambda package: package("deepcam").power(
            node=lambda file: file.set(CONVERSION_EFFICIENCY, 0.9, measurement_type="DC")
        ),
    ),
    (
        "POW11",
        "error",
        lambda package: package("deepcam").power(node=lambda file: file.add("conversion_eff", 0.9, file.stop_ms)),
    ),
    ("POW11", "note", lambda package: package("deepcam").power(node=lambda file: file.drop("conversion_eff"))),
    (
        "POW11",
        "error",
        lambda package: package("deepcam").power(node=lambda file: file.set(POWER_START, None, scope=PARTS_SCOPE[:-1])),
    ),
    (
        "POW11",
        "error",
        lambda package: package("deepcam").power(
            node=lambda file: file.set(POWER_START, None, source="rapl", sensor="package-0")
        ),
    ),
    (
        "POW11",
        "error",
        lambda package: package("deepcam").power(node=lambda file: file.set(POWER_START, None, source="DCGM")),
    ),
    (
        "POW11",
        "error",
        lambda package: package("deepcam").power(
            switch=lambda file: file.add(POWER_START, None, file.start_ms, scope=PARTS_SCOPE)
        ),
    ),
    (
        "PKG01",
        "error",
        lambda package: package().move("results/example_n64/strong/cosmoflow", "results/example_n64/cosmoflow"),
    ),
    ("PKG01", "error", lambda package: package().remove("systems")),
    ("PKG01", "error", lambda package: package().remove("results")),
    ("PKG02", "error", lambda package: package().rename_folder("CosmoFlow")),
    ("PKG03", "warning", lambda package: package().rename_runs("run_{}.txt")),
    ("PKG03", "warning", lambda package: package().rename_runs("result_{}.txt.txt")),
    ("PKG03", "warning", lambda package: package().file("notes.md", "hello")),
    ("PKG04", "error", lambda package: package().replace("systems/example_n64.json", b'{"division" "closed"}')),
    ("PKG04", "error", lambda package: package().replace("systems/example_n64.json", b"[1, 2]")),
    ("PKG04", "warning", lambda package: package().replace("systems/left_over.json", b"{}")),
    (
        "PKG04",
        "warning",
        lambda package: package().change("systems/example_n64.json", lambda text: b"\xef\xbb\xbf" + text),
    ),
    (
        "PKG07",
        "warning",
        lambda package: package().change("systems/example_n64.json", lambda text: text[:-2] + b', "cooling": "some"}'),
    ),
    ("PKG05", "error", lambda package: package().system(framework=None)),
    ("PKG05", "error", lambda package: package().system(framework=None, framewrok="PyTorch")),
    ("PKG05", "error", lambda package: package(round_="0.7").system(division=None)),
    ("PKG06", "error", lambda package: package().system(number_of_nodes="many")),
    ("PKG06", "error", lambda package: package().system(number_of_nodes="0")),
    ("PKG06", "error", lambda package: package().system(number_of_nodes="16,000")),
    ("PKG06", "error", lambda package: package().system(accelerators_per_node="4e2")),
    ("PKG06", "error", lambda package: package().system(framework=["torch"])),
    ("PKG06", "error", lambda package: package(round_="0.7").system(number_of_nodes="many")),
    ("PKG06", "error", lambda package: package(round_="0.7").system(status=["onprem"])),
    ("PKG07", "error", lambda package: package().system(division="opne")),
    ("PKG07", "warning", lambda package: package().system(status="sometimes")),
    ("PKG07", "warning", lambda package: package().system(submitter="")),
    ("PKG07", "note", lambda package: package().system(host_storage_type="")),
    ("PKG11", "warning", lambda package: package().replace("package_checker_params", b"rcp_bypass\n")),
    (
        "PKG11",
        "warning",
        lambda package: package().replace("results/Package_Checker_Params.txt", b"--Seed Checker Bypass"),
    ),
    ("POW01", "error", lambda package: package().file("power/node_0.txt", "")),
    ("POW01", "warning", lambda package: package("deepcam").power().file("power/result_9/node_0.txt", "")),
    ("POW01", "warning", lambda package: package("deepcam").power().file("power/result_1/meter.csv", "")),
    ("POW01", "warning", lambda package: package("deepcam").power().file("power/result_1/spl.txt", "")),
    ("POW02", "error", lambda package: package("deepcam").power().file("power/result_1/node_00.txt", "")),
    ("POW02", "error", lambda package: move_power_file(package("deepcam").power(), "sw_0.txt", "sw_0.txt.old")),
    (
        "POW03",
        "warning",
        lambda package: package("deepcam", scaling="weak").power().edit(2, lambda log: log.set("number_of_nodes", 16)),
    ),
    ("POW03", "error", lambda package: move_power_file(package("deepcam").power(), "node_1.txt", "node_1.txt.old")),
    ("POW03", "error warning", lambda package: package("deepcam").power(node=imitate)),
    (
        "POW03",
        "warning",
        lambda package: package("deepcam").power(
            node=lambda file: imitate(file).convert(lambda watts: [each * 1.01 for each in watts])
        ),
    ),
    (
        "POW03",
        "warning",
        lambda package: package("deepcam").power(node=lambda file: imitate(file).convert(lambda watts: watts[::-1])),
    ),
    (
        "POW03",
        "warning",
        lambda package: package("deepcam").power(node=lambda file: file.set(POWER_START, None, host="node_0")),
    ),
    (
        "POW04",
        "error",
        lambda package: package("deepcam").power(switch=lambda file: file.drop("interconnect_power_est")),
    ),
    (
        "POW04",
        "error",
        lambda package: package("deepcam").power(switch=lambda file: file.set("interconnect_power_est", -5)),
    ),
    (
        "POW04",
        "error",
        lambda package: package("deepcam").power(switch=lambda file: file.set("interconnect_power_est", 0)),
    ),
    (
        "POW04",
        "warning",
        lambda package: package("deepcam").power(switch=lambda file: file.set("interconnect_power_est", 1e-9)),
    ),
    (
        "POW04",
        "warning",
        lambda package: package("deepcam").power(switch=lambda file: file.set("interconnect_power_est", 1e9)),
    ),
    (
        "POW04",
        "warning",
        lambda package: package("deepcam").power(switch=lambda file: file.add("interconnect_power_est", 9, 1.7e12)),
    ),
    (
        "PRV02",
        "",
        lambda package: package().replace(
            "benchmarks/cosmoflow/a.py", b"# Copyright (c) 2020 Jane Doe <jane@example.org>\n"
        ),
    ),
    (
        "PRV02",
        "warning",
        lambda package: package().replace("benchmarks/cosmoflow/a.py", b"MAIL = 'j.doe@example.org'\n"),
    ),
    ("PRV02", "", lambda package: package().replace("benchmarks/cosmoflow/a.sh", b"export HF_TOKEN=${HF_TOKEN:?}\n")),
    ("PRV02", "warning", lambda package: package().system(hw_notes="ask jane.doe@example.org")),
    (
        "PRV02",
        "warning",
        lambda package: package().replace("benchmarks/cosmoflow/example_n64/setup.sh", b"#!/bin/sh\ncd /home/jd\n"),
    ),
    ("PRV02", "", lambda package: package().replace("benchmarks/cosmoflow/a.md", b"AKIAIOSFODNN7EXAMPLE\n")),
    (
        "PRV02",
        "",
        lambda package: package().replace("benchmarks/cosmoflow/a.sh", b"curl -u me:$PW u://me:changeme@db\n"),
    ),
    (
        "PRV02",
        "error",
        lambda package: package().file("slurm-1234.out", "+ export GH_TOKEN=ghp_" + LETTERS.decode() * 2),
    ),
    (
        "PRV02",
        "warning",
        lambda package: package().replace("benchmarks/cosmoflow/a.sh", b"DB=pg://me:%s@db\n" % LETTERS[:9]),
    ),
    (
        "PRV02",
        "error",
        lambda package: package().replace("id_rsa", b"-----BEGIN RSA PRIVATE KEY" + b"-----\n" + LETTERS * 2 + b"\n"),
    ),
    ("PKG10", "note", lambda package: package().file("../.gitignore", "x")),
    ("PKG10", "error", lambda package: package().link("../latest", "nowhere")),
    ("PKG10", "warning", lambda package: package().replace("docs/run:1.md", b"x")),
    ("PKG10", "warning", lambda package: package().replace("docs/Größe.md", b"x")),
    ("PKG10", "warning", lambda package: package().replace("docs/aux.md", b"x")),
    ("PKG10", "warning", lambda package: package().replace("/".join(["deeply"] * 30) + "/a.md", b"x")),
    ("PKG33", "warning", lambda package: package().link("../../../../benchmarks/other", "../../Elsewhere/results")),
    ("PKG33", "error", lambda package: package().link("../oc20", "../../../../Elsewhere/results/oc20")),
    ("PKG33", "error", lambda package: package().file("scaling.json/notes.txt", "x")),
    (
        "PKG33",
        "error",
        lambda package: package().replace("benchmarks/cosmoflow/example_n64/example_n64_jax.json/a", b"x"),
    ),
    (
        "PKG36",
        "",
        lambda package: package().replace("benchmarks/cosmoflow/implementations/a/tests/run_1.txt", b":::MLLOG {}"),
    ),
    (
        "PKG36",
        "warning",
        lambda package: package().replace("benchmarks/old/results/a.txt", b"").replace("benchmarks/old/systems/a", b""),
    ),
    (
        "PKG36",
        "warning",
        lambda package: package().replace("benchmarks/cosmoflow/logs/result_1.txt", b"start\n:::MLLOG {}"),
    ),
    ("PKG36", "warning", lambda package: package().replace("benchmarks/cosmoflow/logs/run-1.TXT", b":::MLLOG {}")),
    ("PKG32", "warning", lambda package: package().replace("benchmarks/cosmoflow/implementations/torch/a.o", b"x")),
    ("PKG32", "warning", lambda package: package().replace("core.4711", b"x")),
    ("PKG32", "warning", lambda package: package().replace("README.md~", b"x")),
    ("PKG32", "warning", lambda package: package().replace("benchmarks/cosmoflow/slurm-17.out", b"")),
    ("RUN01", "error", lambda package: package(runs=11)),
    ("RUN01", "error", lambda package: package(runs=0).file("README.md", "x")),
    ("RUN01", "error", lambda package: package(scaling="weak", runs=9)),
    ("RUN02", "error", lambda package: package(scaling="weak").edit(1, lambda log: log.last_evaluation(0.2))),
    ("RUN02", "warning", lambda package: package().edit(4, lambda log: log.last_evaluation(0.2))),
    ("RUN06", "", lambda package: package(scaling="weak").edit(3, lambda log: log.set("number_of_nodes", 16.0))),
    (
        "RUN06",
        "error",
        lambda package: package(scaling="weak").edit(1, lambda log: log.set("accelerators_per_node", 8)),
    ),
    ("RUN06", "error", lambda package: package().edit(3, lambda log: log.set("opt_base_learning_rate", 1.0))),
    ("RUN11", "", lambda package: package(scaling="weak").prune(1, lambda log: log.set("seed", 1001))),
    ("RUN06", "", lambda package: package(scaling="weak").prune(1, lambda log: log.set("global_batch_size", 512.0))),
    (
        "RUN06",
        "",
        lambda package: package(scaling="weak", division="open").prune(
            1, lambda log: log.set("opt_base_learning_rate", 0.007)
        ),
    ),
    (
        "RUN06",
        "warning",
        lambda package: package(scaling="weak").prune(1, lambda log: log.set("global_batch_size", 1024)),
    ),
    (
        "RUN06",
        "warning",
        lambda package: package(scaling="weak").prune(1, lambda log: log.set("opt_base_learning_rate", 0.007)),
    ),
    (
        "RUN06",
        "warning",
        lambda package: package(scaling="weak", division="open").prune(1, lambda log: log.set("number_of_nodes", 64)),
    ),
    ("RUN11", "warning", lambda package: package().prune(1)),
    (
        "RUN06",
        "",
        lambda package: package().edit(3, lambda log: log.set("opt_base_learning_rate", 0.006000000052154064)),
    ),
    ("RUN20", "note", lambda package: package(division="open").edit(3, lambda log: log.drop("dropout"))),
    (
        "RUN20",
        "error",
        lambda package: package().by_suite().edit(3, lambda log: log.provenance(source_sha256="6" * 64)),
    ),
    (
        "RUN20",
        "error",
        lambda package: package().by_suite().edit(3, lambda log: log.versions(**{DISTRIBUTION: "0.1.0"})),
    ),
    ("RUN20", "warning", lambda package: package().by_suite().edit(3, lambda log: log.versions(torch="2.0.1"))),
    (
        "RUN20",
        "warning",
        lambda package: (
            package()
            .by_suite()
            .edit(3, lambda log: log.provenance(data_sha256="6" * 64))
            .edit(4, lambda log: log.provenance(data_sha256="7" * 64))
        ),
    ),
    (
        "RUN20",
        "warning",
        lambda package: (
            package()
            .by_suite()
            .edit(3, lambda log: log.provenance(host={"cores": 64}))
            .edit(4, lambda log: log.provenance(host={"cores": 128}))
        ),
    ),
    (
        "RUN20",
        "warning",
        lambda package: (
            package()
            .by_suite()
            .edit(3, lambda log: log.set("number_of_ranks", 64))
            .edit(4, lambda log: log.set("number_of_ranks", 32))
        ),
    ),
    ("PKG20", "error", lambda package: package().system(submitter="SUBMISSION_ORG_PLACEHOLDER")),
    ("PKG20", "error", lambda package: package().system(host_networking="TBD", host_networking_topology="???")),
    ("PKG20", "error", lambda package: package().system(other_software_stack={"CUDA": "<version>"})),
    ("PKG20", "warning", lambda package: package().system(accelerator_model_name="N/A")),
    ("PKG20", "error", lambda package: package().copy_to("SUBMISSION_PLATFORM_PLACEHOLDER")),
    ("PKG07", "note", lambda package: package().system(system_type=["datacenter"])),
    ("RUN08", "error", lambda package: package().system(division="open")),
    ("RUN09", "", lambda package: package().system(status="available")),
    (
        "RUN09",
        "",
        lambda package: package(runs=1).edit(1, lambda log: log.set(*NAMELESS)),
    ),  # the folder is named Example
    (
        "RUN09",
        "",
        lambda package: package(runs=1).edit(1, lambda log: log.set(*NAMELESS)).system(submitter="Example_Org"),
    ),
    ("RUN09", "", lambda package: package(runs=1).by_suite().system(framework="PyTorch NVIDIA Release 23.09")),
    ("RUN09", "error", lambda package: package().system(number_of_nodes="512")),
    ("PKG06", "error", lambda package: package().system(number_of_nodes="1" + "0" * 400)),
    ("RUN09", "error", lambda package: package().system(accelerators_per_node="8")),
    ("RUN09", "error", lambda package: package().system(accelerators_per_node="0")),
    ("RUN09", "warning", lambda package: package(scaling="weak").system(accelerators_per_node="8")),
    ("RUN09", "note", lambda package: package(runs=1).by_suite().system(framework="TensorFlow 2.15")),
    ("RUN09", "warning", lambda package: package().system(submitter="Somebody Else")),
    (
        "RUN09",
        "warning",
        lambda package: package(runs=1).edit(1, lambda log: log.set(*NAMELESS)).system(submitter="Somebody Else"),
    ),
    ("RUN09", "warning", lambda package: package().system(status="cloud")),
    ("RUN09", "warning", lambda package: package().edit(3, lambda log: log.set("submission_platform", "another_n128"))),
)
