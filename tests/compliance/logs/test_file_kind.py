"""What is given as a log and is none is named, with what to do, in one finding; so is a log of another suite."""

import base64
import bz2
import gzip
import io
import json
import lzma
import pickle
import tarfile
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.file_kind import _BINARY, _TEXT, SYSTEM, TFRECORD
from compliance.engine import Options, check_paths
from compliance.engine.log_checker import LogTask, judge_log
from compliance.formats.style import Style
from compliance.formats.text import render
from compliance.logs.file_kind import TRAINING_BENCHMARKS
from compliance.logs.log import parse_log
from compliance.model.judging import Case
from compliance.model.system import read_description
from compliance.samples.log import SampleLog
from compliance.samples.package import SamplePackage
from tests.compliance.judged import judge_bytes

VALID = SampleLog(epochs=2).bytes()


def zip_of(name):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, VALID)
    return buffer.getvalue()


def tar_of(name):
    buffer, entry = io.BytesIO(), tarfile.TarInfo(name)
    entry.size = len(VALID)
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(entry, io.BytesIO(VALID))
    return buffer.getvalue()


TAR = tar_of("result_0.txt")
STORED = ("zip", "torch.save", "npz", "xlsx", "docx", "tar", "tar.gz")
"""Files that contain the lines of a log as they are: the official tool reads them."""
JSON = {"submitter": "University", "division": "closed", "system_name": "n64", "number_of_nodes": "16"}
STORAGE = {"start": "2025-01-01", "num_accelerators": 8, "metric": {"train_au_mean_percentage": 99.0}}
FILES = {
    "zip": (zip_of("result_0.txt"), "a zip archive", "unzip FILE"),
    "an empty zip": (b"PK\5\6" + bytes(18), "a zip archive", "unzip FILE"),
    "torch.save": (zip_of("model/data.pkl"), "checkpoint", "result_<i>.txt"),
    "torch.save before 1.6": (pickle.dumps(0x1950A86A20F9469CFC6C, 2), "a PyTorch checkpoint", "result_<i>.txt"),
    "npz": (zip_of("pos.npy"), "numpy arrays", "result_<i>.txt"),
    "npy": (b"\x93NUMPY\1\0v\0{'descr': '<f4'", "a numpy array", "result_<i>.txt"),
    "xlsx": (zip_of("xl/workbook.xml"), "a spreadsheet", "result_<i>.txt"),
    "docx": (zip_of("word/document.xml"), "an Office document", "result_<i>.txt"),
    "NetCDF": (b"CDF\2\0\0\0\0\0\0\0\n", "a classic NetCDF file", "result_<i>.txt"),
    "LMDB": (bytes(10) + b"\x08\0\0\0\0\0\xde\xc0\xef\xbe\1\0\0\0", "an LMDB file", "result_<i>.txt"),
    "TFRecord": (bytes.fromhex("4c00000000000000f5d4a2a0") + b"\n", "a TFRecord file", "result_<i>.txt"),
    "compact": (b"OC20BIN\0\1\0\0\0", "compact frames", "result_<i>.txt"),
    "packed": (b"CFPACK\0\0\1\0\0\0", "a packed sample", "result_<i>.txt"),
    "Parquet": (b"PAR1\x15\4", "a Parquet file", "result_<i>.txt"),
    "safetensors": (b'\x10\1\0\0\0\0\0\0{"__metadata__":{}}', "safetensors", "result_<i>.txt"),
    "tar": (TAR, "a tar archive", "tar xf FILE"),
    "tar.gz": (gzip.compress(TAR), "a tar archive", "tar xf FILE"),
    "tar.xz": (lzma.compress(TAR), "xz", "tar xf"),
    "bzip2": (bz2.compress(VALID), "bzip2", "bunzip2"),
    "zstd": (b"\x28\xb5\x2f\xfd\x04\x58" + bytes(range(99)), "zstd", "unzstd"),
    "7z": (b"7z\xbc\xaf\x27\x1c\0\4" + bytes(range(99)), "a 7z archive", "7z x"),
    "gzip in gzip": (gzip.compress(gzip.compress(VALID)), "compressed with gzip", "compressed twice: `gunzip -k FILE`"),
    "PDF": (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "a PDF", "result_<i>.txt"),
    "PNG": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "an image", "result_<i>.txt"),
    "JPEG": (b"\xff\xd8\xff\xe0\0\x10JFIF\0", "an image", "result_<i>.txt"),
    "HDF5": (b"\x89HDF\r\n\x1a\n" + bytes(99), "HDF5", "result_<i>.txt"),
    "ELF": (b"\x7fELF\2\1\1" + bytes(99), "a program", "result_<i>.txt"),
    "pickle": (pickle.dumps({"epoch": 3}), "a pickle of Python", "result_<i>.txt"),
    "HTML": (b"\n<!DOCTYPE html>\n<html>" + VALID.replace(b'"', b"&quot;"), "a web page", "Download"),
    "LFS": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "Git LFS", "git lfs pull"),
    "PTDaemon": (b"Time,28-12-2020 15:21:14.682,Watts,22.95,Volts,228.5,Amps,0.2,PF,0.5,Mark,a\n", "PTDaemon", "mllog"),
    "MLPerf 0.5": (
        b"start\n:::MLPv0.5.0 resnet 1541635760.35 (train.py:7) run_start\n",
        "MLPerf Training 0.5",
        "repeat",
    ),
    "annex": (b"/annex/objects/SHA256E-s9--0.txt\n", "git-annex", "git annex get"),
    "annex, a link as text": (b"../.git/annex/objects/a/b/SHA256E-s9--0.txt", "git-annex", "git annex get"),
    "DVC": (b"md5: 1a\nouts:\n- md5: a3\n  size: 3\n  path: x\n", "a pointer of DVC", "dvc pull FILE"),
    "notebook": (b'{"cells": [{"cell_type": "code", ', "a notebook", "result_<i>.txt"),
    "reference points": (b'{"c_64": {"Benchmark": "c", "BS": 64, "Hyperparams": {', "convergence", "result_<i>.txt"),
    "scaling": (b'{"scaling_factor": 1.1}', "scaling.json", "result_<i>.txt"),
    "system": (json.dumps(JSON, indent=2).encode(), "a system description", "system --check"),
    "system with a mark": (b"\xef\xbb\xbf" + json.dumps(JSON).encode(), "a system description", "system --check"),
    "Storage": (json.dumps(STORAGE, indent=4).encode(), "MLPerf Storage", "mlpstorage"),
    "Inference": (b"=" * 48 + b"\nMLPerf Results Summary\n" + b"=" * 48 + b"\nSUT name : x", "Inference", "submission"),
    "no token": (VALID.replace(b":::MLLOG ", b""), "without `:::MLLOG `", "mllog"),
    "JSON": (b'{"epoch": 1}\n{"epoch": 2}\n', "a JSON object", "result_<i>.txt"),
    "nodes": (b'{"mlperf_hpc_node":{"host":"n1"}}\n', "lines of --this-node", "--merge FILE"),
    "Slurm": (b"srun: job 12 queued\nslurmstepd: error: *** JOB 12 CANCELLED ***\n", "a job's output?", "in its place"),
    "empty": (b"", "an empty file", "repeat the run"),
    "zeros": (bytes(9000), "a file of NUL bytes", "Copy it again"),
    "base64": (base64.encodebytes(VALID), "text in base64", "base64 -d < FILE"),
    "mail": (
        b"Subject: x\nContent-Transfer-Encoding: base64\n\n" + base64.encodebytes(VALID),
        "source of a mail",
        "email.message_from",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_kind_is_one_finding(name):
    data, kind, fix = FILES[name]
    run = judge_bytes(data)
    (finding,) = run.findings
    assert (finding.rule, finding.severity, run.verdict) == ("FRM03", "error", "FAIL")
    assert kind in finding.message and finding.message.startswith("this is ") and fix in finding.fix
    official = judge_bytes(data, "official")
    assert official.only_rule == "" and (official.verdict == "FAIL" or name in STORED)


def test_every_kind_has_an_example():
    named = {judge_bytes(data).findings[0].message for data, _, _ in FILES.values()}
    names = {row[-2] for row in (*_BINARY, *_TEXT)} | {TFRECORD, SYSTEM}
    assert {f"this is {name}, not a log" for name in names} <= named


@pytest.mark.parametrize(
    "data",
    [
        VALID,
        b'{"loss": 0.5}\n' + VALID,
        b'{"system_name": "n64", "number_of_nodes": 16}\n' + VALID,
        b"<html><pre>\n" + VALID + b"</pre></html>\n",
        b"=====\nMLPerf Results Summary\n" + VALID,
        b"PK: 3\n" + VALID,
        gzip.compress(VALID),
    ],
)
def test_a_log_stays_one_whatever_text_is_before_it(data):
    assert judge_bytes(data).verdict == judge_bytes(data, "official").verdict == "PASS"


@settings(derandomize=True, max_examples=200)
@given(st.sampled_from([data[:80] for data, _, _ in FILES.values()]), st.integers(0, 80), st.binary(max_size=300))
def test_no_first_bytes_stop_the_reader(head, kept, rest):
    for data in (head[:kept] + rest, head[:kept] + rest + b"\n" + VALID, gzip.compress(head[:kept] + rest)):
        for profile in ("strict", "official"):
            run = judge_bytes(data, profile)
            assert not [finding for finding in run.findings if "the rule itself failed" in finding.message]
            assert not run.only_rule or len(run.findings) == 1


# -- logs of other suites ----------------------------------------------------------------------------------


def loadgen(key, value):
    record = {
        "key": key,
        "value": value,
        "time_ms": 0.004,
        "namespace": "mlperf::logging",
        "event_type": "POINT_IN_TIME",
    }
    return f":::MLLOG {json.dumps(record | {'metadata': {'is_error': False, 'file': 'version.cc'}})}\n"


LOGS = {
    "MLPerf Training (llama2_70b_lora)": SampleLog().set("submission_benchmark", "llama2_70b_lora").bytes(),
    "MLPerf Training (bert)": SampleLog().set("submission_benchmark", "BERT ").bytes(),
    "MLCommons Science (cloudmask)": SampleLog().set("submission_benchmark", "CloudMask").bytes(),
    "MLPerf Inference": (
        loadgen("loadgen_version", "4.1")
        + loadgen("effective_scenario", "Offline")
        + loadgen("result_validity", "VALID")
    ).encode(),
}


@pytest.mark.parametrize("suite", LOGS)
def test_a_log_of_another_suite_is_one_finding(suite):
    (finding,) = judge_bytes(LOGS[suite]).findings
    assert (finding.rule, finding.severity) == ("SET02", "error")
    assert finding.message == f"this is a log of {suite}, not of MLPerf HPC"
    assert finding.fix
    assert judge_bytes(LOGS[suite], "official").only_rule == ""


def test_the_benchmarks_of_training_are_those_of_its_tool():
    meta = pytest.importorskip("mlperf_logging.benchmark_meta")
    assert set(meta.get_result_file_counts("training")) == TRAINING_BENCHMARKS


@pytest.mark.parametrize("name", ["my_benchmark", "", 5, ["bert"]])
def test_an_unknown_benchmark_is_of_no_suite(name):
    log = SampleLog().set("submission_benchmark", name).add("loadgen_version", "4.1")
    run = judge_bytes(log.bytes())
    assert run.only_rule == "" and "SET02" in {finding.rule for finding in run.findings}


@pytest.mark.parametrize("options", [Options(ignore={"SET02": "a trial"}), Options(select=("ORD", "SET03"))])
def test_a_rule_that_is_left_out_does_not_take_the_others_with_it(options):
    data = SampleLog().set("submission_benchmark", "bert").drop("run_stop").bytes()
    run = judge_log(parse_log(data), LogTask("result_0.txt", Case("3.0"), options))
    assert "ORD05" in {finding.rule for finding in run.findings}


def test_many_logs_of_another_suite_are_few_lines(tmp_path):
    for number in range(12):
        (tmp_path / f"result_{number}.txt").write_bytes(LOGS["MLPerf Training (bert)"])
    report = check_paths([tmp_path], Options(jobs=1, usage="hpc"))
    assert {(finding.rule, finding.severity) for finding in report.findings} == {("SET02", "error")}
    text = render(report, Style())
    assert text.count("MLPerf Training (bert)") == 1 and "in 12 files" in text and len(text.splitlines()) < 20
    assert text.count("FAIL") == 2 and "12 files that are no logs of MLPerf HPC" in text and "not asked" in text


def test_a_package_of_another_suite_is_not_judged_as_ours(tmp_path):
    package = SamplePackage(round_="0.7").edit_all(lambda log: log.set("submission_benchmark", "resnet"))
    package.replace("systems/left_over.json", b"{}").replace("results/empty/bert/scaling.json", b"{}")
    report = check_paths([package.write(tmp_path / "Example")], Options(jobs=1, usage="hpc"))
    found = {finding.rule for finding in report.findings if finding.severity != "skipped"}
    assert found == {"SET02", "RUN01"} and report.verdict == "FAIL" and report.rounds == []
    assert report.official is None and all(report.verdict_of(results) != "PASS" for results in report.sets)


def test_the_only_log_of_a_result_may_not_be_another_file(tmp_path):
    package = SamplePackage(runs=1).write(tmp_path / "Example")
    next((tmp_path / "Example" / "results").rglob("result_1.txt")).write_bytes(b"")
    assert check_paths([package], Options(jobs=1)).verdict == "FAIL"
    (finding,) = check_paths([tmp_path / "Example/systems"], Options(jobs=1)).findings
    assert f"check the submission, {tmp_path / 'Example'}" in finding.fix


# -- other files that are read ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (json.dumps(JSON).encode("utf-16"), "has the encoding UTF-16; convert it: iconv -f UTF-16 -t UTF-8"),
        (FILES["LFS"][0], "is a pointer of Git LFS, not JSON"),
        (b'{"system_name": ', "is not valid JSON: the text ends before all brackets are closed"),
    ],
)
def test_a_system_description_of_another_kind(data, words, tmp_path):
    path = tmp_path / "n64.json"
    path.write_bytes(data)
    assert read_description(str(path)).problem == words
