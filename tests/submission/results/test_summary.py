"""The tables of a round, as rows and as text, and the command that shows them."""

import csv
import io
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from compliance import check_logs
from compliance.formats.table import TextTable, plain_text, shortened
from compliance.samples.package import SamplePackage
from submission.results.csv_files import csv_text
from submission.results.read_rows import list_rows
from submission.results.rows import compare_rounds
from submission.results.tables import Summary
from submission.summary import main

EVIL = "=cmd|'/x'!A1\x1b[31m|<b>@you"


def plain_summary(rows, changes=(), width=None):
    return Summary(rows, changes).format_text(width)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "v3.0" / "Example"


def row_of(package, folder, **options):
    (row,) = list_rows(check_logs(package.write(folder), **options))
    return row


# -- rows --------------------------------------------------------------------------------------------------


def test_row_of_a_time_to_train(folder):
    row = row_of(SamplePackage(), folder)
    assert (row.verdict, row.round, row.organisation, row.division) == ("PASS", "3.0", "Example", "closed")
    assert (row.system, row.scaling, row.benchmark, row.availability) == (
        "example_n64",
        "strong",
        "cosmoflow",
        "onprem",
    )
    assert (row.nodes, row.processors, row.accelerators, row.batch_size) == (16, 32, 64, 512)
    assert (row.runs, row.required_runs, row.incomplete, row.mini) == (10, 10, "", False)
    assert row.minutes == pytest.approx(sum(row.run_minutes[1:-1]) / 8) and len(row.run_minutes) == 10
    assert (row.convergence, row.convergence_unit, row.rcp, row.rcp_factor) == (25, "epochs", "passed", 1.0)
    assert row.score == row.normalised == row.minutes and row.scaled is None and row.models is None
    assert "epochs: to the target, as logged" in plain_summary([row])


def test_a_row_has_raw_normalised_and_scaled_scores(folder):
    package = SamplePackage(epochs=[22, 22, 23, 22, 23, 22, 23, 22, 23, 23]).file(
        "scaling.json", '{"scaling_factor": 2}'
    )
    row = row_of(package, folder)
    assert row.rcp == "passed" and row.rcp_factor == pytest.approx(22.8333 / row.convergence, rel=1e-4)
    assert row.normalised == pytest.approx(row.minutes * row.rcp_factor) and row.scaled == 2 * row.minutes
    assert "×1.0" in plain_summary([row])


def test_too_fast_and_open_results_are_not_normalised(folder, tmp_path):
    fast = row_of(SamplePackage(epochs=10), folder)
    assert fast.rcp == "failed: converges too fast" and fast.rcp_factor is None and fast.normalised is None
    free = row_of(SamplePackage(division="open"), tmp_path / "open")
    assert (free.rcp, free.rcp_factor, free.normalised) == ("", None, None) and free.score == free.minutes


def test_row_of_a_throughput(folder):
    package = SamplePackage("openfold", scaling="weak", runs=12).start_together().with_time_to_train()
    strong, weak = list_rows(check_logs(package.system(number_of_nodes="192").write(folder)))
    assert (weak.scaling, weak.models, weak.instance_scale, weak.runs) == ("weak", 12, 64, 12)
    assert weak.models_per_minute == pytest.approx(12 / weak.minutes) and weak.score == weak.normalised
    assert weak.convergence_unit == strong.convergence_unit == "samples" and weak.convergence > 1000
    assert "*" in plain_summary([strong, weak]) and "Throughput" in plain_summary([strong, weak])


def test_the_size_of_an_instance_is_not_that_of_the_whole_system_that_its_log_states(folder):
    package = SamplePackage(scaling="weak").start_together()
    row = row_of(package, folder)
    assert (row.models, row.instance_scale, row.states_whole_system) == (10, 6, True)
    assert "~6" in plain_summary([row]) and "the logs state the whole system" in plain_summary([row])


STAGING_MS = 30 * 60_000


def test_a_speedup_compares_the_same_clock_of_both_rounds(tmp_path):
    before = row_of(
        SamplePackage(round_="2.0").edit_all(lambda log: log.stage("run_start", STAGING_MS)),
        tmp_path / "v2.0" / "Example",
    )
    now = row_of(
        SamplePackage().edit_all(lambda log: log.stage("init_stop", STAGING_MS)), tmp_path / "v3.0" / "Example"
    )
    assert (before.staging_clock, now.staging_clock) == ("in", "out")
    assert before.score - now.score == pytest.approx(30, rel=0.01) and now.score == now.minutes
    found = {one.organisation: one for one in compare_rounds([before], [now])}["Example"]
    assert (found.before, found.now) == (before.score, now.score)
    assert found.speedup == pytest.approx(before.score / (now.score + 30)) and found.speedup < before.score / now.score
    text = plain_summary([before, now], [found])
    assert "30.00 in" in text and "30.00 out" in text and "speed-up (both with staging)" in text
    (table,) = csv.DictReader(io.StringIO(Summary([now]).format_csv()["time_to_train.csv"]))
    assert float(table["time_with_staging_minutes"]) == pytest.approx(now.minutes + 30)
    assert float(table["time_without_staging_minutes"]) == now.minutes


def test_clocks_are_only_told_apart_where_data_were_staged(folder):
    row = row_of(SamplePackage(), folder)
    text = plain_summary([row], compare_rounds([row], [row]))
    assert "staging" not in text and row.score_with_staging == row.score


def test_a_set_with_few_runs_is_incomplete(folder):
    row = row_of(SamplePackage(runs=2), folder)
    assert (row.incomplete, row.verdict, row.minutes) == ("2 of 10 runs", "INCOMPLETE", None)
    assert "INCOMPLETE: Example/example_n64/strong/cosmoflow has 2 of 10 runs" in plain_summary([row])
    assert row_of(SamplePackage("oc20", scaling="weak", runs=4), folder.parent / "weak").incomplete == "4 of 5 runs"


def test_mini_results_are_marked(folder):
    runs = {"variant": "mini", "epochs": 5, "settings": {"global_batch_size": 8}}
    row = row_of(SamplePackage("oc20", division="open", **runs), folder, allow_mini=True)
    assert row.mini and row.verdict != "FAIL"
    assert "oc20 (mini), open" in plain_summary([row]) and "not an MLPerf result" in plain_summary([row])


def test_a_folder_without_package_gets_its_facts_from_the_logs(tmp_path):
    SamplePackage().write(tmp_path / "whole")
    (row,) = list_rows(check_logs(tmp_path / "whole" / "results" / "example_n64" / "strong" / "cosmoflow"))
    assert row.organisation == "whole"
    (tmp_path / "whole" / "results" / "example_n64" / "strong" / "cosmoflow").rename(tmp_path / "loose")
    (row,) = list_rows(check_logs(tmp_path / "loose"))
    assert (row.organisation, row.system, row.availability) == ("Example University", "example_n64", "onprem")
    assert (row.nodes, row.accelerators, row.processors, row.framework) == (16, 64, None, "")
    assert row.folder == str(tmp_path / "loose"), "else two folders of one system look alike"


def test_a_system_without_accelerators_and_with_an_odd_description(folder):
    row = row_of(SamplePackage().system(accelerators_per_node="0", framework=7, status=None), folder)
    assert (row.accelerators, row.processors, row.framework, row.availability) == (0, 32, "", "onprem")
    named = replace(row, processor="cpu", accelerator="gpu")
    assert (named.device, replace(named, accelerators=64).device) == ("cpu", "gpu")
    assert "   32    512" in plain_summary([row])


# -- text --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [90, 200])
def test_the_command_respects_columns_and_cuts_nothing_in_a_file(columns, folder, tmp_path, monkeypatch, call):
    system = "system_of_the_year_2024_with_a_long_name"
    package = SamplePackage().system(system_name=system).write(folder)
    (folder / "results/example_n64").rename(folder / "results" / system)
    (folder / "systems/example_n64.json").rename(folder / f"systems/{system}.json")
    assert system in call(main, package).out
    monkeypatch.setenv("COLUMNS", str(columns))
    text = call(main, package).out
    assert max(map(len, text.splitlines())) <= columns and (system in text) == (columns == 200)
    call(main, package, "-o", tmp_path / "table.txt")
    assert system in (tmp_path / "table.txt").read_text()


def test_the_numbers_of_a_column_have_equal_decimals_and_energy_is_in_kilojoules(folder):
    row = row_of(SamplePackage(), folder)
    others = [replace(row, minutes=0.237, energy_joules=5.3e6), replace(row, minutes=8.5, energy_joules=1.2e9)]
    lines = plain_summary(others).splitlines()
    assert "0.237 " in lines[4] and "8.500 " in lines[5] and " 5,300 " in lines[4] and " 1,200,000 " in lines[5]
    assert "kJ" in lines[2]


def test_names_are_cut_in_the_middle():
    assert shortened("fugaku_8192_closed", 11) == "fuga...osed" and shortened("short", 5) == "short"
    table = TextTable("t", (("name", ""), ("n", "")), (("a" * 50, "1" * 50),), (False, True))
    assert plain_text(table, 20).splitlines()[-1] == f"aaa...aa {'1' * 50}"


def test_hostile_text_is_harmless(folder):
    row = replace(row_of(SamplePackage(), folder), organisation=EVIL, system=EVIL, framework=EVIL)
    changes = compare_rounds([row], [row])
    assert "\x1b" not in plain_summary([row], changes)
    markdown = Summary([row], changes).format_markdown()
    assert "\x1b" not in markdown and "<b>" not in markdown and "@you" not in markdown
    assert len({line.count("|") for line in markdown.split("\n\n")[1].splitlines()}) == 1
    (line,) = csv.DictReader(io.StringIO(Summary([row]).format_csv()["time_to_train.csv"]))
    assert line["framework"].startswith("'=cmd") and "\x1b" not in line["framework"]
    assert json.loads(Summary([row]).format_json())["results"][0]["system"] == EVIL


def test_csv_has_one_table_in_each_file_with_units_in_its_headings(folder):
    report = check_logs(SamplePackage(scaling="weak").with_time_to_train().write(folder))
    texts = Summary(list_rows(report)).format_csv()
    assert list(texts) == ["time_to_train.csv", "throughput.csv"]
    strong, weak = (list(csv.DictReader(io.StringIO(text))) for text in texts.values())
    assert len(strong) == len(weak) == 1
    assert float(strong[0]["time_to_train_minutes"]) == list_rows(report)[0].minutes
    assert len(strong[0]["run_minutes"].split()) == 10 and strong[0]["energy_joules"] == ""
    assert float(weak[0]["models_per_minute"]) == list_rows(report)[1].models_per_minute


# -- waivers -----------------------------------------------------------------------------------------------


@pytest.fixture
def waivers(folder, tmp_path):
    SamplePackage(epochs=18).replace("package_checker_params", b"rcp_bypass").write(folder)
    path = tmp_path / "waivers.yaml"
    path.write_text("3.0/Example/example_n64/strong/cosmoflow: agreed on 1 May\n3.0/Exmple/x/weak/oc20: why\n")
    return path


def test_a_waived_result_has_its_score_again_marked_with_the_reason(folder, waivers, call):
    command = [folder, "--previous", SamplePackage().write(folder.parent.parent / "before" / "Example")]
    out = call(main, *command).out
    assert "FAIL" in out and "bypass: Example/example_n64/strong/cosmoflow" in out and "rcp_bypass" in out
    assert "(waived)" not in out
    out, error = call(main, *command, "--waivers", waivers)
    assert "FAIL" not in out and "agreed on 1 May" in out and "min (waived)" in out
    assert error.startswith(f"warning: {waivers}, line 2: this waiver names no result") and error.count("\n") == 1


def test_a_waiver_is_in_the_formats_for_programs(folder, waivers, call):
    (row,) = json.loads(call(main, folder, "--waivers", waivers, "--format", "json").out)["results"]
    assert (row["verdict"], row["waiver"]) == ("WARN", "agreed on 1 May")
    assert row["rcp"] == "waived: agreed on 1 May (converges too fast)"


def test_the_summary_by_the_official_profile(folder, call):
    SamplePackage().copy(1, 2).edit(2, lambda log: log.set("seed", 4711)).write(folder)
    for profile, verdict in (("strict", "FAIL"), ("official", "PASS")):
        said = call(main, folder, "--profile", profile, "--format", "json").out
        assert json.loads(said)["results"][0]["verdict"] == verdict


# -- the previous round -------------------------------------------------------------------------------------


def test_difference_between_rounds(folder):
    strong, weak = list_rows(check_logs(SamplePackage(scaling="weak").with_time_to_train().write(folder)))
    strong, weak = (replace(row, verdict="PASS") for row in (strong, weak))
    before = [replace(strong, normalised=strong.minutes * 3, organisation="EXAMPLE"), replace(weak, normalised=1.0)]
    now = [
        replace(strong, normalised=strong.minutes * 2),
        replace(strong, normalised=strong.minutes * 4),
        replace(strong, normalised=0.1, verdict="FAIL"),
        replace(strong, normalised=strong.minutes, organisation="New"),
        replace(weak, normalised=4.0),
    ]
    found = {(one.organisation, one.scaling): one for one in compare_rounds(before, now)}
    assert found["Example", "strong"].speedup == pytest.approx(1.5)
    assert found["(all)", "strong"].speedup == pytest.approx(3)
    assert found["New", "strong"].before is None and found["New", "strong"].speedup is None
    assert found["Example", "weak"].speedup == 4 and found["Example", "weak"].unit == "models/min"
    text = plain_summary(now, compare_rounds(before, now))
    assert "1.50×" in text and "now" in text


# -- the command -------------------------------------------------------------------------------------------


def test_the_command(folder, tmp_path, call):
    SamplePackage().write(folder)
    (folder.parent / "result_9.txt").write_text("")
    said = call(main, folder.parent).out
    assert said.startswith("Round 3.0. Time to train") and "not looked at: 1 file (result_9.txt)" in said
    call(main, folder, "--format", "markdown", "-o", tmp_path / "table.md")
    markdown = (tmp_path / "table.md").read_text()
    assert (
        markdown.startswith("**Round 3.0") and "| cosmoflow, closed | PASS | Example | example_n64 | 64 |" in markdown
    )
    assert "`" not in markdown and "&#" not in markdown
    said = call(main, folder, "--format", "json", "--round", "v2.0.0").out
    assert json.loads(said)["results"][0]["round"] == "2.0"
    assert call(main, folder, "--format", "csv").out.startswith("round,organisation")


def test_the_command_with_the_previous_round(folder, tmp_path, call):
    SamplePackage().write(folder)
    before = SamplePackage(round_="2.0", epochs=50).write(tmp_path / "v2.0" / "Example")
    for _ in range(2):  # it may be called again
        call(main, folder, "--previous", before, "--format", "csv", "-o", tmp_path / "tables")
    assert {path.name for path in (tmp_path / "tables").iterdir()} == {"differences.csv", "time_to_train.csv"}
    assert "Best passing score" in call(main, folder, "--previous", before).out
    assert "round 3.0, later than round 2.0" in call(main, before, "--previous", folder).err
    assert "holds 10 logs of what is shown" in call(main, folder, "--previous", folder).err
    assert "there is no PATH" in call(main, "--previous", before, folder, status=2).err


def test_a_row_of_a_run_shows_whether_it_or_its_result_fails(folder, call):
    path = SamplePackage(epochs=10).edit(3, lambda log: log.drop("run_stop")).write(folder)
    said = call(main, path, "--runs", "--columns", "log,verdict,result_verdict", "--format", "csv").out
    rows = list(csv.DictReader(io.StringIO(said)))
    assert [row["verdict"] for row in rows].count("FAIL") == 1
    assert {row["result_verdict"] for row in rows} == {"FAIL"}
    by_heading = call(main, path, "--runs", "--columns", "log,Verdict,RESULT", "--sort", "-run min", "--format", "csv")
    assert by_heading.out.splitlines()[0] == "log,verdict,result_verdict" and " fix: " in by_heading.err
    assert call(main, path, "--runs").out.splitlines()[1].split()[:3] == ["verdict", "result", "log"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--previous", "no*where"], "no file matches this pattern"),
        (["--previous", "files"], "did you mean 'file'"),
        (["--previous", "nowhere"], "no such file or folder: nowhere"),
        (["--format", "csv"], "-o FOLDER"),
        (["--format", "csv", "-o", "file"], "file"),
        (["-o", "file/table.txt"], "file"),
        (["--round", "4.2"], "known are of MLPerf HPC: 0.7, 1.0"),
        (["--columns", "scor"], "no column 'scor' (did you mean 'score'?)"),
        (["--sort=-nothing"], "no column 'nothing'"),
        (["--sort", "time"], "no column 'time' (did you mean 'minutes'?)"),
        (["--sort", "quality"], "is of runs: add --runs"),
        (["--compare", "b", "c"], "--compare is for two"),
        (["--columns", "score", "--format", "json"], "JSON has all fields"),
        (["--runs", "--columns", "score"], "no column 'score'"),
        (["--n", "3"], "--n is for runs: add --runs"),
        *(
            (["--runs", f"--n={exponent}"], "a number above 0, at most 100")
            for exponent in ("0", "-1", "nan", "inf", "x")
        ),
        (["--format", "markdown", "-o", "v3.0/Example/README.md"], "which is read; name one outside of it"),
        (["--format", "csv", "-o", "v3.0/Example/tables"], "which is read; name one outside of it"),
        (["--runs", "--previous", "file"], "--previous is for results"),
    ],
)
def test_wrong_use(folder, empty_folder, call, options, message):
    path = SamplePackage(scaling="weak").with_time_to_train().write(folder)
    (empty_folder / "file").write_text("x")
    assert message in call(main, path, *options, status=2).err


def test_nothing_to_summarise(tmp_path, call):
    (tmp_path / "notes.md").write_text("nothing")
    assert "no results in" in call(main, tmp_path, status=1).err
    systems = Path(SamplePackage().write(tmp_path / "Example"), "systems")
    assert "expected the submission itself, " in call(main, systems, status=1).err


def test_columns_and_their_order_are_chosen_by_name(folder, call):
    for name, epochs in (("Slow", 30), ("Fast", 25)):
        SamplePackage(epochs=epochs).write(folder.parent / name)
    SamplePackage("oc20").write(folder.parent / "Other")
    command = [folder.parent, "--columns", "organisation,score,flops", "--benchmark", "cosmoflow"]
    for order, names in (("score", ["Fast", "Slow"]), ("-score", ["Slow", "Fast"])):
        _, heading, _, group, *lines = call(main, *command, f"--sort={order}").out.splitlines()
        assert heading.split() == ["organisation", "score", "training"] and group == "cosmoflow, closed"
        assert [line.split()[0] for line in lines[:2]] == names
    fast, slow = csv.DictReader(io.StringIO(call(main, *command, "--sort", "organisation", "--format", "csv").out))
    assert list(fast) == ["organisation", "score", "flops"] and float(fast["score"]) < float(slow["score"])
    runs = call(main, folder.parent, "--runs", "--benchmark", "cosmoflow", "--sort=-train_minutes").out
    assert runs.splitlines()[4].split()[2].startswith("Slow")


def test_columns_are_listed(call):
    listed = {line.split()[0] for line in call(main, "--columns", "help").out.splitlines()}
    assert {"score", "utilization", "states", "train_minutes"} <= listed


def test_csv_has_no_control_characters_and_only_finite_numbers():
    text = csv_text(("a", "b"), [["x\x1b[31m\x00\u202e", math.inf], ["\n=1", math.nan], [-1.5, None]])
    assert text == "a,b\nx\\x1b[31m\\x00\\u202e,\n\\n=1,\n-1.5,\n"
