"""Where logs are looked for, and which round they are judged by."""

import os
import re

import pytest

from compliance.engine import Options, check_paths
from compliance.formats import FORMATS
from compliance.formats.style import Style
from compliance.model.layout import discover, round_of_path
from compliance.samples.log import SampleLog
from compliance.samples.package import SamplePackage


def names(places):
    return [os.path.basename(path) for place in places for path in place.logs]


def test_a_file_is_a_log_and_standard_input_too(tmp_path):
    (tmp_path / "a.anything").write_text("")
    for name in ("a.anything", "-", "missing"):
        path = name if name == "-" else str(tmp_path / name)
        assert discover([path]).logs == [path]
    places = discover([str(tmp_path / "a.anything"), "-", str(tmp_path / "missing")])
    assert places.logs == ["-"] and names(places.folders) == ["a.anything", "missing"]


def test_logs_of_a_folder_are_found_below_it_in_natural_order(tmp_path):
    for name in ("b/result_10.txt", "b/result_2.txt", "b/notes.txt", "c/train.log", "c/old.log.gz", "c/data.h5"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    places = discover([str(tmp_path)])
    assert names(places.folders) == ["result_2.txt", "result_10.txt", "old.log.gz", "train.log"]
    assert not places.packages


def test_logs_that_do_not_count_are_named(tmp_path):
    for name in ("runs/result_0.txt", "runs/early.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(SampleLog().bytes())
    report = check_paths([tmp_path], Options())
    assert "not looked at: 1 file (early.txt)" in FORMATS["text"](report, Style())
    SamplePackage().write(tmp_path / "University")
    (tmp_path / "loose.txt").write_text("")
    loose, early = tmp_path / "loose.txt", tmp_path / "runs" / "early.txt"
    assert discover([str(tmp_path)]).unread == [str(loose), str(early.with_name("result_0.txt"))]
    assert discover([str(tmp_path), str(early.parent), str(loose)]).unread == [str(early)]
    assert discover([str(early), str(loose)]).unread == [str(early.with_name("result_0.txt"))]
    assert discover([str(early.with_name("result_0.txt")), str(early.parent)]).logs == []  # it is in the folder


def test_loose_results_that_share_runs_fail(tmp_path):
    for path in (tmp_path / folder / f"result_{run}.txt" for folder in "ab" for run in range(10)):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(SampleLog(run=int(path.stem[-1])).bytes())
    report = check_paths([tmp_path], Options())
    assert [report.verdict_of(results) for results in report.sets] == ["PASS", "FAIL"]


def test_the_same_path_twice_is_one(tmp_path):
    (tmp_path / "x.txt").write_text("")
    assert len(discover([str(tmp_path / "x.txt"), str(tmp_path / "." / "x.txt")]).logs) == 1


def test_link_loops_end(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "result_1.txt").write_text("")
    (tmp_path / "logs" / "again").symlink_to(tmp_path / "logs")
    (tmp_path / "self").symlink_to(tmp_path / "self")
    assert names(discover([str(tmp_path)]).folders) == ["result_1.txt"]


def test_a_repository_of_packages_of_several_rounds(tmp_path):
    SamplePackage().write(tmp_path / "hpc_results_v3.0" / "Alpha")
    SamplePackage("deepcam", "1.0").write(tmp_path / "v1.0" / "Beta")
    SamplePackage(round_="0.7").write(tmp_path / "first" / "Gamma")
    report = check_paths([tmp_path], Options())
    assert [(package.organisation, package.round) for package in report.packages] == [
        ("Gamma", "0.7"),
        ("Alpha", "3.0"),
        ("Beta", "1.0"),
    ]
    assert report.verdict == "PASS" and len(report.runs) == 10 + 5 + 10


def test_source_code_in_a_folder_named_results_is_no_package(tmp_path):
    (tmp_path / "results" / "page").mkdir(parents=True)
    assert not discover([str(tmp_path)]).packages


def test_a_folder_inside_a_package_is_judged_with_its_system_description(tmp_path):
    package = SamplePackage().system(number_of_nodes="512")
    root = package.write(tmp_path / "Example")
    for inside in (package.folder, "results", "results/example_n64"):
        report = check_paths([os.path.join(root, inside)], Options(round="3.0"))
        assert {finding.rule for finding in report.findings if finding.severity == "error"} == {"RUN09"}


def test_a_loose_folder_of_runs_is_a_result_in_the_making(tmp_path):
    for run in range(3):
        (tmp_path / f"result_{run}.txt").write_bytes(SampleLog(run=run).bytes())
    report = check_paths([tmp_path], Options())
    assert (report.verdict, report.exit_code) == ("INCOMPLETE", 1)
    assert {finding.rule for finding in report.findings if finding.severity == "error"} == {"RUN01"}
    (tmp_path / "result_3.txt").write_bytes((tmp_path / "result_0.txt").read_bytes())
    found = {finding.rule for finding in check_paths([tmp_path], Options()).findings if finding.severity == "error"}
    assert found == {"RUN05", "RUN24"}  # copies start at once, as instances do


def test_the_logs_of_a_folder_are_judged_as_the_results_that_they_are_of(tmp_path):
    for benchmark in ("cosmoflow", "deepcam"):
        for run in range(10 if benchmark == "cosmoflow" else 4):
            (tmp_path / f"slurm-{benchmark}{run}.out").write_bytes(SampleLog(benchmark, run=run).bytes())
    report = check_paths([tmp_path], Options())
    assert [(results.label, report.verdict_of(results)) for results in report.sets] == [
        ("cosmoflow", "PASS"),
        ("deepcam", "INCOMPLETE"),
    ]
    assert report.verdict == "INCOMPLETE" and {run.verdict for run in report.runs} == {"PASS"}


def test_an_empty_folder_is_said_to_be_empty(tmp_path):
    report = check_paths([tmp_path], Options())
    assert report.verdict == "FAIL"
    assert "no logs" in report.findings[0].message
    assert "Name a folder" in report.findings[0].fix


@pytest.mark.parametrize(
    ("path", "round_"),
    [
        ("hpc_results_v1.0/NVIDIA", "1.0"),
        ("v0.7/x", "0.7"),
        ("rounds/2.0.0/x", "2.0"),
        ("v3.0/old/v2.0/x", "2.0"),
        ("v2.0", "2.0"),
        ("hpc_results_v3.0/v2.0", "3.0"),
        ("hpc_results_v3.0/NVIDIA-2.0", "3.0"),
        ("hpc_results_v3.0/Example/results/2.0/strong/oc20", "3.0"),
        ("Example/results/v2.0/strong/oc20", None),
        ("pytorch-2.0/x", None),
        ("runs_v1.0/x", None),
        ("torch 1.0/x", None),
    ],
)
def test_round_in_a_folder_name(path, round_, tmp_path):
    folder = tmp_path / path
    folder.mkdir(parents=True)
    for results in tmp_path.rglob("results"):
        results.with_name("systems").mkdir()
    assert round_of_path(str(folder)) == round_


@pytest.mark.parametrize(
    ("of_runs", "asked", "why"),
    [
        (["3.0"], None, "the newest"),
        (["3.0"], "2.0", "as asked for"),
        (["1.0"], None, "of that time"),
        (["0.7", "2.0"], None, "of that time"),
        (["1.0", "3.0"], None, "the newest"),
    ],
)
def test_the_report_says_which_round_and_why(of_runs, asked, why, tmp_path):
    for number, round_ in enumerate(of_runs):
        (tmp_path / f"result_{number}.txt").write_bytes(SampleLog(round_=round_).bytes())
    [(_, judged_by, reason, _)] = check_paths([tmp_path], Options(round=asked)).rounds
    assert judged_by == asked or judged_by == of_runs[-1]
    assert why in reason


@pytest.mark.parametrize(
    ("round_", "folder", "asked", "told"),
    [
        ("3.0", "v2.0", None, r"round 2.0 \(a folder above is named so\).* 3.0 had begun"),
        ("3.0", "mine", "1.0", r"round 1.0 \(as asked for\).* 3.0 had begun"),
        ("1.0", "v1.0", "0.7", r"round 0.7 \(as asked for\).* 1.0 had begun"),
        ("0.7", "mine", "1.0", ""),
        ("2.0", "v2.0", None, ""),
        ("2.0", "v3.0", None, ""),
        ("3.0", "mine", None, ""),
    ],
)
def test_an_older_round_than_the_runs_dates_is_a_note(round_, folder, asked, told, tmp_path):
    SamplePackage(round_=round_).write(tmp_path / folder / "Example")
    report = check_paths([str(tmp_path)], Options(round=asked, jobs=1))
    notes = [finding for finding in report.findings if finding.rule == "ORD20"]
    assert {finding.severity for finding in notes} <= {"note"} and bool(notes) == bool(told)
    assert all(re.search(told, finding.message) for finding in notes)


def test_runs_of_later_dates_in_a_flat_layout_are_judged_by_their_round(tmp_path):
    root = SamplePackage("deepcam").move("results/example_n64/strong/deepcam", "results/example_n64/deepcam")
    report = check_paths([root.write(tmp_path / "Example")], Options(jobs=1))
    (finding,) = [finding for finding in report.findings if not finding.cause]
    assert (finding.rule, report.sets[0].round) == ("PKG01", "3.0") and "without strong or weak" in finding.message


@pytest.mark.parametrize("round_", ["1.0", "3.0"])
def test_of_a_flat_layout_the_official_verdict_is_that_of_the_profile_official(round_, tmp_path):
    root = SamplePackage("deepcam", round_).move("results/example_n64/strong/deepcam", "results/example_n64/deepcam")
    folder = root.write(tmp_path / "Example")
    strict, official = (check_paths([folder], Options(jobs=1, profile=profile)) for profile in ("strict", "official"))
    assert strict.official.findings == official.findings
