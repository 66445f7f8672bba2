"""Curves, figures and page of a study from its records."""

import math
import random

import pytest

from submission.study.curves import trace_curve, trace_curves
from submission.study.figures import draw_best_sizes, draw_curve, draw_files
from submission.study.page import write_study_page
from submission.study.records import CurveSpec, StudyResult, StudyRun


def scaling(ranks, benchmark="cosmoflow", spread=0.02, repetitions=3):
    draw = random.Random(benchmark)
    return [
        StudyRun(
            f"{benchmark}-{count}-{seed}",
            {"ranks": count, "benchmark": benchmark},
            {"samples_per_s": 100 * count**0.9 * math.exp(draw.gauss(0, spread))},
            f"python -m {benchmark} measure mini --ranks {count} --seed {seed}",
        )
        for count in ranks
        for seed in range(repetitions)
    ]


SPEC = CurveSpec("Throughput", "ranks", "samples_per_s", "benchmark", "power", y_label="samples per second", ideal=1.0)


def test_repetitions_are_one_point_and_each_line_has_its_law_or_the_reason_for_none():
    broken = StudyRun("broken", {"ranks": 4, "benchmark": "cosmoflow"}, problem="out of memory")
    other = StudyRun("other", {"ranks": 4, "benchmark": "cosmoflow"}, {"loss": 1.0})
    curve = trace_curve([*scaling((1, 2, 4, 8)), *scaling((1, 2), "deepcam"), broken, other], SPEC)
    first, second = curve.lines
    assert [(point.x, len(point.ys)) for point in first.points] == [(1, 3), (2, 3), (4, 3), (8, 3)]
    assert first.law.count == 12 and first.law.get("b").value == pytest.approx(0.9, abs=0.05)
    assert second.law is None and second.problem == "no fit: 2 different values of ranks; a power law needs 4"
    assert curve.left_out == (("broken", "out of memory"), ("other", "it has no samples_per_s"))
    assert curve.laws == (("cosmoflow", first.law, ""), ("deepcam", None, second.problem))
    drawing = draw_curve(curve)
    assert "no fit: 2 different values of ranks; a power law needs 4" in drawing and "perfect scaling" in drawing
    assert drawing.count('class="range org-') == 1 and drawing.count('class="iso"') == 3


@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize("runs", [[], scaling((4,), repetitions=1), scaling((1, 4)), scaling((1, 2, 4, 8, 16))])
def test_any_number_of_points_can_be_drawn(runs, log):
    spec = CurveSpec("t", "ranks", "samples_per_s", law="power", log_x=log, log_y=log, ideal=1.0)
    drawing = draw_curve(trace_curve(runs, spec))
    assert bool(drawing) == bool(runs) and "nan" not in drawing and "inf" not in drawing.replace("infinity", "")


def test_words_on_an_axis_are_places_and_have_no_law():
    runs = [
        StudyRun(name, {"precision": name}, {"flops": speed}) for name, speed in (("float32", 1e13), ("bf16", 2e15))
    ]
    curve = trace_curve(runs, CurveSpec("Speed", "precision", "flops", law="power"))
    assert curve.names == ("float32", "bf16") and "a law needs numbers" in draw_curve(curve)


def test_isoflop_draws_parabolas_and_the_best_sizes():
    runs = [
        StudyRun(
            f"{c:g}-{f}", {"flop": c, "width": f}, {"parameters": 3e-3 * c**0.5 * f, "loss": c**-0.1 + math.log(f) ** 2}
        )
        for c in (1e12, 1e13, 1e14, 1e15)
        for f in (0.25, 0.5, 1, 2, 4)
    ]
    curve = trace_curve(runs, CurveSpec("Loss", "parameters", "loss", "flop", "isoflop", log_y=False))
    assert curve.law.get("a").value == pytest.approx(0.5)
    assert draw_curve(curve).count("minimum at") == 4 and "C^0.5" in draw_best_sizes(curve)
    assert set(draw_files([curve])) == {"curve-loss.svg", "curve-loss-best.svg"}


def test_the_page_has_every_run_with_its_command_and_escapes_all_of_it(tmp_path):
    evil = "<script>alert(1)</script>"
    runs = [*scaling((1, 2, 4, 8)), StudyRun(evil, {"ranks": 2, "benchmark": evil}, {}, evil, f"killed {evil}")]
    result = StudyResult(evil, evil, (evil,), {"cpu": evil}, tuple(runs), (SPEC,), (evil,))
    write_study_page(result, trace_curves(result), tmp_path / "study.html")
    page = (tmp_path / "study.html").read_text()
    assert evil not in page and page.count("&lt;script&gt;") >= 8
    assert all(run.command in page for run in runs[:-1]) and "12 of 13 runs with a result" in page
    assert "With 95 % intervals" in page and "Residuals" in page and "1 run not on this curve" in page
    assert page.count("<svg") == 1 and "src=" not in page
    write_study_page(result, trace_curves(result), tmp_path / "study.html")
    (tmp_path / "other.html").write_text("mine")
    with pytest.raises(FileExistsError):
        write_study_page(result, trace_curves(result), tmp_path / "other.html")
