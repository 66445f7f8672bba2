"""The figure of the data per node: what it says of data that fit memory, a disk, or neither."""

from dataclasses import replace
from xml.etree import ElementTree

from submission.results.figures.hardware import data_per_node
from submission.results.quantities import NodeData
from tests.submission.results.conftest import analysed_set


def on(nodes, memory, disk=None, total=5.5e12):
    result = analysed_set(f"daint_n{nodes}", 256, nodes, organisation="CSCS")
    return replace(result, data=NodeData(nodes, total / nodes, total / nodes, memory, disk))


def test_it_says_what_holds_the_data_of_a_node():
    sets = [on(128, 64e9), on(256, 64e9), on(64, 64e9, 2e11), on(32, 64e9), on(16, None)]
    assert [each.data.held_by for each in sets] == ["memory", "memory", "disk", "neither", ""]
    svg = ElementTree.fromstring(data_per_node(sets, "memory"))
    texts = [element.text for element in svg.iter("text")]
    assert "CSCS daint_n256" in texts and "CSCS daint_n64: exceeds memory, fits disk" in texts
    assert "CSCS daint_n32: exceeds memory" in texts and "CSCS daint_n16: memory unknown" in texts
    assert "CSCS daint_n128, 43 GB of 64." in svg.findtext("desc")
    assert sum(element.get("class") == "batch" for element in svg.iter("line")) >= 4  # memories, one of the legend


def test_results_on_equal_nodes_stand_side_by_side():
    one, other = on(128, 64e9), on(128, 384e9)
    other = replace(other, row=replace(other.row, organisation="Fujitsu", system="abci_512"))
    svg = ElementTree.fromstring(data_per_node([one, other], "memory"))
    places = {mark.get("data-result"): mark.get("cx") for mark in svg.iter("circle") if mark.get("data-result")}
    assert len({*places.values()}) == 2 == len(places)
    assert {"CSCS daint_n128", "Fujitsu abci_512"} <= {text.text for text in svg.iter("text")}


def test_many_results_are_numbered_and_those_without_data_left_out():
    many = [on(nodes, 64e9) for nodes in range(8, 48)]
    assert "exceeds memory" in data_per_node(many, "memory")
    assert data_per_node([replace(many[0], data=None)], "memory") == ""
