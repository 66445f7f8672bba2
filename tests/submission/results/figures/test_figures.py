"""The figures of an analysis: what they show, that labels can be read, and that they are safe on a page."""

import random
import re
from dataclasses import replace
from importlib.resources import files
from itertools import combinations
from xml.etree import ElementTree

import pytest

from submission.results.figures.labels import (
    LINE,
    ORGANISATIONS,
    SPARE,
    Box,
    by_benchmark,
    choose_colour,
    enclose_point,
    fit_text,
    format_amount,
    name_results,
    place_labels,
    text_width,
)
from submission.results.figures.panel import HALF, STATES, WIDE, Iso
from submission.results.figures.runs import draw_time_shares, draw_variation
from submission.results.figures.scaling import best_by_round, compute_analysis, draw_fit, fit_name, time_to_solution
from submission.results.fits.fit import epochs_against_batch
from submission.results.page.export import render_standalone
from submission.results.quantities import NO_STAGING, STAGING, AnalysedRun, AnalysedSet
from submission.results.sets import log_pca, summarise_values
from tests.submission.results.conftest import analysed_set

FIGURES = [time_to_solution, draw_time_shares, compute_analysis, draw_variation, best_by_round]
STYLE = files("submission.results.page").joinpath("page.css").read_text(encoding="utf-8")


def result(organisation="LBNL", minutes=20.0, units=512, runs=10, seed=1, **row):
    """Return an `analysed_set` whose runs vary by some percent."""
    dice = random.Random(seed)
    measured = []
    for number in range(runs):
        epochs, time = 50 * dice.lognormvariate(0, 0.1), minutes / 50 * dice.lognormvariate(0, 0.02)
        values = {
            "run_time": epochs * time,
            "run_stop_epoch": epochs,
            "run_epoch_time": time,
            "run_epoch_throughput": 1 / time,
            "run_train_throughput": 5e5 / time,
            "run_eval_throughput": 1e6 / time,
            "run_steps": epochs * 2048,
        }
        measured.append(AnalysedRun(f"result_{number}.txt", values, kept=True))
    found = {name: summarise_values(name, [run.values[name] for run in measured]) for name in measured[0].values}
    pca = log_pca((run.values["run_stop_epoch"], run.values["run_epoch_time"]) for run in measured)
    shares = {"staging_time/run_time": 0.1, "train_time/run_time": 0.6, "eval_time/run_time": 0.25}
    given = {"system": "perlmutter_n512_pytorch1.9", "batch": 256, "round": "1.0", "minutes": minutes} | row
    one = analysed_set(units=units, organisation=organisation, **given)
    return replace(one, runs=tuple(measured), statistics=found, ratios=shares, pca=pca)


def texts(svg):
    """Return what is written in a figure, without titles and descriptions."""
    return [element.text for element in ElementTree.fromstring(svg).findall(".//{*}text")]


def rounds():
    """Return results of several organisations, benchmarks and rounds."""
    return [
        result("LBNL", 30, 512, seed=1, round="1.0"),
        result("CSCS", 300, 128, seed=2, round="1.0", division="open"),
        result("NVIDIA", 5, 2048, seed=3, round="2.0"),
        result("tacc", 60, 64, seed=4, round="2.0", benchmark="deepcam"),
        result("NVIDIA", 60, 64, seed=5, round="2.0", scaling="weak", models_per_minute=2.5),
    ]


# -- labels ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_labels_of_20_points_stay_inside_and_overlap_nothing(seed):
    dice = random.Random(seed)
    area = Box(0, 0, 860, 450)
    points = [(dice.uniform(100, 700), dice.uniform(60, 400)) for _ in range(20)]
    found = place_labels(points, [text_width("LBNL coriknl_n512")] * 20, area, [])
    boxes = [place.box for place in found]
    assert all(area.contains(box) and box.bottom - box.top == pytest.approx(LINE) for box in boxes)
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    assert not any(box.overlaps(enclose_point(point, 5)) for box in boxes for point in points)


def test_a_label_without_room_is_left_out():
    assert place_labels([(50, 50)], [200.0], Box(0, 0, 100, 100), []) == [None]


def test_a_long_text_loses_its_middle():
    assert fit_text("short", 100) == "short"
    cut = fit_text("HelmholtzAI juwelsbooster_gpu_n1024", 150)
    assert text_width(cut) <= 150 and cut.startswith("Helm") and cut.endswith("n1024")
    assert fit_text("begin…the end of it", 80).count("…") == 1


# -- names and numbers -------------------------------------------------------------------------------------


def test_an_organisation_has_one_colour_in_every_spelling():
    assert choose_colour("tacc") == choose_colour("TACC") and choose_colour("Helmholtz AI") == choose_colour(
        "HelmholtzAI"
    )
    assert len({choose_colour(name) for name in ORGANISATIONS}) == len(ORGANISATIONS)
    spare = {f"org-{len(ORGANISATIONS) + at}" for at in range(SPARE)}
    assert {choose_colour(f"Centre {at}") for at in range(50)} == spare
    assert all(f"svg .{class_} {{" in STYLE for class_ in spare | {choose_colour(name) for name in ORGANISATIONS})


def test_labels_are_short_but_different():
    one, other = result(system="abci_n4_pytorch1.9"), result(system="abci_n4_mxnet1.8")
    assert name_results([one]) == ["LBNL abci_n4"]
    assert name_results([one, other]) == ["LBNL abci_n4_pytorch1.9", "LBNL abci_n4_mxnet1.8"]
    closed, opened = (result(system=f"abci_n4_pytorch_{kind}", division=kind) for kind in ("closed", "open"))
    assert name_results([closed, opened]) == ["LBNL abci_n4_closed", "LBNL abci_n4_open"]
    assert name_results([one, result(system=one.row.system, scaling="weak")])[1].endswith(", closed throughput")
    assert name_results([one, result(system="x", round="2.0")]) == ["LBNL abci_n4 v1.0", "LBNL x v2.0"]


def test_the_same_runs_in_two_rounds_are_drawn_once():
    again = [result(round="1.0"), result(round="2.0"), result(round="2.0", seed=2, system="new")]
    once = by_benchmark(again)["cosmoflow"]
    assert name_results(once) == ["LBNL perlmutter_n512 v1.0, v2.0", "LBNL new v2.0"]
    about = {*re.findall(r'data-result="([^"]*)"', time_to_solution(once, "x"))}
    first, second, new = (each.full_name for each in again)
    assert about == {f"{first}\n{second}", new}, "the page filters by the names of both"


def test_amounts_have_three_digits():
    assert [format_amount(value) for value in (0.12345, 7, 123.4, 1234, 51234, 2.06e6)] == [
        "0.123", "7", "123", "1234", "51.2k", "2.06M",
    ]  # fmt: skip
    assert [format_amount(1e-5), format_amount(3e-7)] == ["10⁻⁵", "3·10⁻⁷"]


@pytest.mark.parametrize("iso", [Iso(-1, 60), Iso(1), Iso(1, 0.5, -1)])
def test_a_quantity_is_constant_on_its_line(iso):
    quantity = iso.find_quantity(512, 20)
    assert [iso.find_quantity(x, iso.find_constant(quantity) * x**iso.slope) for x in (1, 7, 4096)] == pytest.approx(
        [quantity] * 3
    )
    assert Iso(-1, 60).find_quantity(512, 30) == 256, "512 units for half an hour"


# -- figures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_of_nothing_is_empty(figure):
    assert figure([], "x") == ""
    empty = AnalysedSet(result(verdict="FAIL").row, "results", None, problem="no logs")
    assert figure([empty], "x") == ""


@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_is_safe_and_named(figure):
    hostile = '</svg><script>alert(1)</script>"\x1b'
    sets = [*rounds(), result(hostile, 3, system=hostile, round="3.0")]
    svg = ElementTree.fromstring(figure(sets, "x"))
    ids = [element.get("id") for element in svg.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    assert svg.get("role") == "img" and svg[0].tag == "title" and svg[1].text
    assert not any(element.get("style") or element.tag == "script" for element in svg.iter())
    used = {name for element in svg.iter() for name in (element.get("class") or "").split()}
    assert used <= set(re.findall(r"\.([a-z][\w-]*)", STYLE)), "every class has a rule"


@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_of_extreme_values_is_drawn(figure):
    odd = result(runs=1, batch_size=0)
    huge = {name: replace(found, mean=float("inf")) for name, found in odd.statistics.items()}
    sets = [odd, replace(odd, statistics=huge), *rounds()]
    assert not {"nan", "inf"} & set(
        re.findall(r"[a-z]+", " ".join(re.findall(r' (?:x|y|d|points)="([^"]*)"', figure(sets, "x"))))
    )


def test_many_runs_are_a_distribution_without_dots():
    many = time_to_solution([result(runs=637, scaling="weak")], "x")
    few = time_to_solution([result(runs=9)], "x")
    assert (many.count('class="violin org-'), many.count('class="runs org-')) == (1, 0)
    assert (few.count('class="violin org-'), few.count('class="runs org-')) == (1, 1)
    assert len(draw_variation([result(runs=637)], "x")) < 10_000


def test_divisions_and_throughput_have_their_own_marks():
    svg = time_to_solution(rounds(), "x")
    assert '<polygon class="mark org-3"' in svg, "a star for the open division"
    assert '<rect class="mark org-0 hollow"' in svg, "a hollow square for throughput"
    assert "open division" in texts(svg) and "open division" not in texts(time_to_solution(rounds()[:1], "x"))


def states():
    """Return a failing result, an incomplete one and a waived one, at three batch sizes."""
    rows = [{"verdict": "FAIL"}, {"incomplete": "3 of 10 runs"}, {"waiver": "late"}]
    return [result(seed=at, system=f"s{at}", batch=64 * at, **row) for at, row in enumerate(rows, 1)]


@pytest.mark.parametrize("figure", FIGURES[:4])
def test_failing_incomplete_and_waived_results_are_marked_as_such(figure):
    svg = figure(states(), "x")
    assert set(STATES.values()) <= set(texts(svg))
    assert not set(STATES.values()) & set(texts(figure(rounds(), "x")))
    for text in STATES.values():
        assert f"; {text}</title>" in svg


def test_names_that_have_no_room_near_their_points_become_numbers_with_a_list():
    sets = [result(system=f"a_long_name_of_system_{at}", minutes=20 + at / 10, seed=at) for at in range(20)]
    svg = time_to_solution(sets, "x", HALF)
    written = texts(svg)
    assert sum("LBNL a_long" in text for text in written) == 20
    assert {str(number) for number in range(1, 21)} <= {number for text in written for number in text.split(", ")}


def test_a_fit_marks_its_results_and_is_named_by_its_contents():
    (fit,) = epochs_against_batch(states())
    svg = draw_fit(fit, {each.full_name: each for each in states()})
    assert set(STATES.values()) <= set(texts(svg))
    assert fit_name(fit) == "fit-epochs-batch-cosmoflow-round-1-0"
    (two,) = epochs_against_batch(states()[:2])
    assert draw_fit(two, {}) == "", "two points are no law"


def test_shares_add_up_and_say_what_is_not_counted():
    written = texts(draw_time_shares([result()], "x"))
    assert {"10%", "60%", "25%"} <= set(written) and "staging not counted" not in written
    without = result()
    without = replace(without, ratios=without.ratios | {"staging_time/run_time": None})
    assert "staging not counted" in texts(draw_time_shares([without], "x"))
    never = replace(without, row=replace(without.row, system="other"), excluded={STAGING: NO_STAGING})
    assert {"no staging logged"} == {text for text in texts(draw_time_shares([never], "x")) if "staging " in text}


def test_variation_says_what_varies():
    assert any(re.fullmatch(r"\d+% epochs, r −?0\.\d\d", text) for text in texts(draw_variation([result()], "x")))
    steady = replace(result(), pca=log_pca([(10.0, 2.0)] * 5))
    svg = draw_variation([steady], "x")
    assert "no variance" in texts(svg) and 'class="ellipse org-' not in svg


def test_best_by_round_takes_the_best_passing_result_with_its_staging():
    sets = [
        result("LBNL", 30, round="1.0"),
        result("CSCS", 10, round="1.0", verdict="FAIL"),
        result("NVIDIA", 4, round="3.0", staging_clock="out", time_with_staging_minutes=5.0),
        result("Dell", 4.5, round="3.0"),
    ]
    written = texts(best_by_round(sets, "x"))
    assert {"LBNL 30.0", "Dell 4.50", "v1.0, 2021", "v3.0, 2023"} <= set(written)
    assert not any(text.startswith(("CSCS", "NVIDIA")) for text in written)
    assert best_by_round(sets[2:], "x") == "", "one round has no course"


# -- files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("figure", FIGURES)
def test_a_file_of_its_own_brings_its_colours(figure):
    text = render_standalone(figure(rounds(), "x"))
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg" and int(root.get("width")) == WIDE
    assert texts(text)[:2] == root.find("{*}title").text.split(": "), "the title is drawn"
    style = root.find("{http://www.w3.org/2000/svg}style").text
    assert "light-dark" not in style and "var(" not in style
    light, dark = style.split("@media (prefers-color-scheme: dark)")
    for rules in (light, dark):
        assert re.search(r"svg \.org-0 \{ color: #\w{6}; \}", rules)
