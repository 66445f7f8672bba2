"""Peak against power, with what results achieve."""

import re
from dataclasses import replace
from importlib.resources import files
from xml.etree import ElementTree

import pytest

from submission.results.figures.hardware import peak_against_power
from submission.results.rows import ResultOperations
from tests.submission.results.conftest import analysed_set

STYLE = files("submission.results.page").joinpath("page.css").read_text(encoding="utf-8")


def rated(system="s", accelerator="A100", share=0.25, number_format="fp16"):
    operations = ResultOperations(training_utilization=share, accelerator=accelerator, peak_format=number_format)
    each = analysed_set(system, 256, 128)
    return replace(each, row=replace(each.row, operations=operations))


@pytest.mark.parametrize("sets", [[], [rated(accelerator="A64FX")], [rated(share=None)], [rated(accelerator="")]])
def test_without_watts_or_a_share_there_is_no_figure(sets):
    assert peak_against_power(sets, "x") == ""


def test_a_result_stands_below_the_peak_of_its_device():
    sets = [rated(share=0.1), rated(share=0.25), rated('</svg><script>"', "P100", 0.5, "fp32")]
    drawing = peak_against_power(sets, "x")
    root = ElementTree.fromstring(drawing)
    texts = [element.text for element in root.iter("text")]
    assert {"A100 fp16", "P100 fp32", "H100 fp16", "Example s cosmoflow, 25 % in training"} <= set(texts)
    assert any(text.endswith("cosmoflow, 50 % in training") for text in texts)
    assert not any("cosmoflow, 10 %" in text for text in texts)
    hints = [element.text for element in root.iter("title")]
    assert any(hint.endswith("s/strong/cosmoflow: 78 TFLOPS of a device, 25.0% of fp16") for hint in hints)
    assert "A100 fp16: 312 TFLOPS, 400 W" in hints and "<script" not in drawing
    used = {name for element in root.iter() for name in (element.get("class") or "").split()}
    assert used <= set(re.findall(r"\.([a-z][\w-]*)", STYLE))
