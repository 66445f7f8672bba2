"""The second set of tampered logs and packages, and of valid variants, is judged rightly, for the right reason."""

import json
import os
import tarfile

import pytest

from compliance.engine import Options, check_paths
from compliance.model.judging import ERROR, NOTE, SKIPPED, WARNING

ABOUT_OTHER_THINGS = ("PKG07", "PKG08", "PKG25", "PRV", "SET06")
"""Warnings of packages that the untampered ones have as well: the archive holds neither code nor descriptions."""

RULES_OF = {
    "json": {"FRM04", "FRM06", "FRM08", "ORD05", "ORD07", "QUA01", "QUA02", "QUA06", "SET04"},
    "time": {"FRM08", "FRM10", "ORD01", "ORD03", "ORD09", "ORD13"},
    "evaluation": {"ORD14", "ORD15", "QUA01", "QUA08", "QUA09"},
    "settings": {"QUA01", "SET01", "SET04", "SET05", "SET08", "SET09"},
    "copies": {"RUN05", "RUN14"},
    "convergence": {"ORD14", "QUA08", "QUA09", "RCP07"},
    "seeds": {"RUN03", "RUN04", "SET08"},
    "throughput": {"QUA01", "RUN01", "RUN02", "RUN06", "RUN19"},
    "system": {"PKG04", "PKG06", "PKG35", "RUN09"},
    "power": {"POW03", "POW11"},
}
"""By family, the rules that name what is wrong with the cases that must not pass."""
VALID_BUT_ONE = {"FRM04"}
"""What names the one variant of the others that must not pass: text after the JSON object."""

PLACES = {
    "j01_dup_key_member.txt": ("FRM06", "", 47),
    "j15_comment_after.txt": ("FRM04", "", 47),
    "j31_time_true.txt": ("FRM08", "", 9),
    "t08_run_start_after_epoch5.txt": ("ORD13", "", 42),
    "t10_run_start_after_epoch1_oc20.txt": ("ORD13", "", 24),
    "t18_init_exact_30min.txt": ("ORD01", "", 25),
    "t26_staging_time_negative.txt": ("ORD09", "", 28),
    "e01_two_values_one_eval_c.txt": ("QUA09", "", 63),
    "e03_re_evaluation_c.txt": ("QUA09", "", 65),
    "e05_last_result_without_eval.txt": ("QUA08", "", 165),
    "e07_injected_result_stops_run_d.txt": ("QUA08", "", 99),
    "e09_epochs_from_minus5.txt": ("ORD14", "", 29),
    "e10_eval_epoch_inflated.txt": ("QUA08", "", 32),
    "e14_openfold_samples_inflated.txt": ("ORD15", "", 58),
    "s45_OC_opt_base_learning_rate.txt": ("SET04", "", 16),
    "s105_org_zero_width.txt": ("SET01", "", 2),
    "c01_shifted_copy": ("RUN05", "result_1.txt", 0),
    "c09_other_system_shifted": ("RUN14", "result_0.txt", 0),
    "r03_fast_renumbered": ("ORD14", "result_1.txt", 29),
    "r05_fast_last_eval_inflated": ("QUA08", "result_1.txt", 77),
    "r12_scaling_json_half": ("RCP07", "scaling.json", 0),
    "s05_same_seed_second_added": ("RUN04", "result_2.txt", 11),
    "w06_mixed_scale_open": ("RUN19", "result_3.txt", 10),
    "y01_accelerators_8": ("RUN09", "32xXE8545x4A100-SXM4-40GB.json", 0),
    "y03_dup_division": ("PKG35", "32xXE8545x4A100-SXM4-40GB.json", 4),
    "p01_readings_of_other_run": ("POW03", "node_0.txt", 0),
}
"""Rule, file and line where a decisive finding must stand, counted by hand; of a single log the file is known."""


@pytest.fixture(scope="module")
def packages(shared, tmp_path_factory):
    folder = tmp_path_factory.mktemp("second")
    with tarfile.open(shared / "adversarial" / "second" / "packages.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def verdict_of(report, case):
    """Return the verdict; warnings that the untampered package has as well do not count."""
    if report.verdict != "WARN" or "file" in case:
        return report.verdict.replace("INCOMPLETE", "FAIL")
    warnings = [found.rule for found in report.findings if found.severity == WARNING]
    return "WARN" if any(not rule.startswith(ABOUT_OTHER_THINGS) for rule in warnings) else "PASS"


def problems(report, case, path):
    """Yield what is wrong with the report on a case."""
    verdict = verdict_of(report, case)
    if verdict not in case["accepted"]:
        yield f"verdict {verdict}, accepted {case['accepted']}"
    told = [found for found in report.findings if found.severity not in (NOTE, SKIPPED)]
    rules = {found.rule for found in told}
    if "PASS" not in case["accepted"] and not rules & RULES_OF.get(case["family"], VALID_BUT_ONE):
        yield f"no rule of the family names it: {sorted(rules)}"
    if any(not found.message or (found.severity == ERROR and not (found.expected or found.key)) for found in told):
        yield "an error that does not say what was expected"
    rule, file, line = PLACES.get(path.name, ("", "", 0))
    at = {(found.rule, os.path.basename(found.path), found.line) for found in told}
    if rule and (rule, file or path.name, line) not in at:
        yield f"{rule} is not in line {line} of {file or path.name}"


def test_cases(shared, packages):
    folder, wrong = shared / "adversarial" / "second", {}
    cases = json.loads((folder / "cases.json").read_text())
    for case in cases:
        path = folder / "logs" / case["file"] if "file" in case else packages / case["package"]
        report = check_paths([path], Options(round=case["round"]))
        if found := list(problems(report, case, path)):
            wrong[path.name] = found
    assert wrong == {}
    assert len(cases) >= 100
    assert PLACES.keys() <= {case.get("file") or case["package"] for case in cases}
