"""What follows from another finding is read on request; an error is read unless another error explains it."""

import pytest

from compliance.check import main
from compliance.engine import Options, check_paths
from compliance.model.layout import RESULTS
from compliance.samples.package import SYSTEM, SamplePackage


def too_fast_with_a_run_that_may_fail():
    return SamplePackage(epochs=18).edit(3, lambda log: log.last_evaluation(0.5).meta("run_stop", "status", "aborted"))


def copied_beside_a_damaged_log():
    package = SamplePackage().copy(1, 2)
    return package.replace(
        f"{package.folder}/result_5.txt", package.files[f"{package.folder}/result_5.txt"].gzip()[:-9]
    )


def without_descriptions():
    return SamplePackage().remove("systems")


@pytest.mark.parametrize(
    ("make", "part", "options", "rule"),
    [
        (too_fast_with_a_run_that_may_fail, "", [], "RCP01"),
        (copied_beside_a_damaged_log, "", [], "RUN05"),
        (without_descriptions, f"{RESULTS}/{SYSTEM}", [], "PKG04"),
        (lambda: SamplePackage().rename_runs("result_{}.log"), "", ["--ignore", "PKG=why"], "RUN01"),
    ],
    ids=["of a tolerated run", "of a damaged log", "of the whole package", "of an ignored rule"],
)
def test_an_error_that_no_other_error_explains_is_shown(make, part, options, rule, tmp_path, capsys):
    make().write(tmp_path / "Example")
    assert main([str(tmp_path / "Example" / part), *options]) == 1
    assert f"\nerror {rule}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("make", "causes"),
    [
        (lambda: SamplePackage().copy(1, 2), {("RUN05", ""), ("RUN04", "RUN05")}),
        (
            lambda: (
                SamplePackage(scaling="weak")
                .start_together()
                .with_time_to_train()
                .edit_all(lambda log: log.add("number_of_ranks", 6))
                .system(number_of_nodes="16")
            ),
            {("RUN10", ""), ("AMT05", "RUN10")},
        ),
    ],
)
def test_a_finding_follows_from_another(make, causes, tmp_path):
    report = check_paths([make().write(tmp_path / "Example")], Options())
    assert {(finding.rule, finding.cause) for finding in report.findings} == causes
