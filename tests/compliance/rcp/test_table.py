"""The table format: what is read, what is refused and with which words."""

from pathlib import Path

import pytest

from compliance.rcp.points import list_points
from compliance.rcp.table import read_table

GOOD = """\
benchmark: oc20
unit: epochs
points:
  - {name: a, batch_size: 8, epochs: [3, 4, 5, 5, 6], hyperparameters: {global_batch_size: 8}}
  - {name: b, batch_size: 16, epochs: [6, 7, 8], hyperparameters: {}, rounds: ["3.0"], variant: mini}
"""


def test_own_tables_are_read_by_round_and_variant(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(GOOD)
    assert [p.name for p in list_points(read_table(path), path, "2.0")] == ["a"]
    assert [p.name for p in list_points(read_table(path), path, variant="mini")] == ["b"]
    assert list_points(read_table(path), path, "2.0", "mini") == ()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("oc20", "resnet", "benchmark: expected cosmoflow"),
        ("unit: epochs\n", "", "missing required field `unit`"),
        ("unit", "units", "unknown field `units`"),
        ("batch_size: 8", "batch_size: 8.5", "Expected `int`, got `float` - at `$.points[0].batch_size`"),
        ("e: 8, epochs", "e: 9, epochs", "hyperparameters.global_batch_size says 8"),
        ("[3, 4", "[-3, 4", "Expected `float` > 0.0 - at `$.points[0].epochs[0]`"),
        ("[3, 4, 5, 5, 6]", "[3]", "point 'a', key 'epochs': an olympic mean needs at least 3"),
        ("[3, 4, 5, 5, 6]", "[3, 4, 5]", None),
        ("[3, 4, 5, 5, 6]", "17", "Expected `array`, got `int` - at `$.points[0].epochs`"),
        ('["3.0"]', '["4.0"]', "rounds: expected those of 0.7, 1.0, 2.0, 3.0, in quotes"),
        ("[3, 4", "[.nan, 4", "Expected `float` > 0.0"),
        ("[3, 4", "[.inf, 4", "Expected `float` <= 1.79"),
        ('["3.0"]', "[3.0]", "Expected `str`, got `float` - at `$.points[1].rounds[0]`"),
        ("name: a, ", "", "missing required field `name` - at `$.points[0]`"),
        ("batch_size: 16", "batch_size: 8", None),
        (", variant: mini", "", None),
        ("variant: mini", "variant: tiny", "variant: expected full or mini or mini2, found 'tiny' - at `$.points[1]`"),
        (
            "batch_size: 16, epochs: [6, 7, 8]",
            "batch_size: 8, epochs: [6, 7, 8], runs: [1]",
            "Expected `object`, got `int` - at `$.points[1].runs[0]`",
        ),
        ("variant: mini", "runs: [{file: f, sha256: x, epochs: 6}]", "at `$.points[1].runs[0].sha256`"),
        (
            "variant: mini",
            f"runs: [{{file: f, sha256: {'a' * 64}, epochs: 6}}]",
            "differs from the epochs under",
        ),
        (
            "variant: mini",
            f"runs: [{{file: f, sha256: {'a' * 64}, epochs: no}}]",
            "Expected `float | null`, got `bool` - at `$.points[1].runs[0].epochs`",
        ),
        ("points:", "points: [", "not a YAML table"),
        (GOOD, "just text", "Expected `object`, got `str`"),
        (GOOD, "\0", "not a YAML table"),
        (GOOD, f"points: {'[' * 10**6}", "nested too deeply"),
        ("benchmark: oc20", "benchmark: &a [x]\nx: [*a, *a]", "aliases"),
    ],
)
def test_broken_tables_name_file_point_and_key(tmp_path: Path, old: str, new: str, message: str | None) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(GOOD.replace(old, new))
    if message is None:
        assert list_points(read_table(path), path)
        return
    with pytest.raises(ValueError) as caught:
        list_points(read_table(path), path)
    assert str(path) in str(caught.value) and message in str(caught.value)


def test_two_points_of_one_batch_size_and_a_missing_file_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    with pytest.raises(ValueError, match="cannot be read"):
        list_points(read_table(path), path)
    path.write_text(GOOD.replace("batch_size: 16", "batch_size: 8").replace(", variant: mini", ""))
    with pytest.raises(ValueError, match=r"point 2 \(b\).*taken in round 3.0 .full. by point 1 \(a\)"):
        list_points(read_table(path), path)
