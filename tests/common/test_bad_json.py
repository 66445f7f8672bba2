"""Texts that are not JSON: the line, the mistake and its fix are named."""

from typing import Any

import pytest

from common.bad_json import decode_json, load_json

GOOD = '{\n  "nodes": "4",\n  "cores": 2,\n  "gpus": [1, 2],\n  "cooling": "air"\n}\n'


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('  "cores": 2,\n', '<<<<<<< HEAD\n  "cores": 2,\n=======\n', '3: .*git.*"cores"'),
        ('"air"\n', '"air"\n>>>>>>> main\n', "6: .*conflict marker"),
        ('"air"', '"air",', "5: a comma after the last member"),
        ("2]", "2,]", "4: a comma after the last member"),
        ("2,\n", "2, # of each\n", "3: a comment"),
        ('"nodes"', "'nodes'", "2: single quotes.*double ones"),
        ('"4",', '"4"', "2: no comma"),
        ("2,\n", "2\n", "3: no comma"),
        ('{\n  "n', 'WARNING: no GPU\n[INFO] done\n{\n  "n', "1: text before the JSON"),
        ("}\n", "}\n3 fields to fill in:\n", "7: text after the JSON"),
        ("}\n", "}\n{}\n", "7: a second object"),
        ('{\n  "n', '\ufeff{\n  "n', "1: a byte order mark"),
        ('"4"', "“4”", "2: typographic quotation marks"),
        ('"4"', "four", "2: a text without quotation marks"),
        ('"4"', '"4', "2: a text without a quotation mark at its end"),
        ('"4"', '"a "big" one"', "2: a quotation mark inside a text"),
        ('"4"', r'"C:\data"', "2: a backslash"),
        ("2,\n", "2,5,\n", "3: a comma inside a number"),
        ("2,\n", "512 GB,\n", "3: a number with more after it"),
        ("2,\n", "None,\n", "3: None, as in Python"),
        ('"nodes":', "nodes:", "2: a name without quotation marks"),
        ('"nodes":', '"nodes"', "2: no colon"),
        ('"cores":', '\xa0"cores":', "3: a no-break"),
        ('"air"\n}\n', "", "5: the text ends before"),
        (GOOD, "", "1: the file is empty"),
        (GOOD, ':::MLLOG {"namespace": ""}\n', "1: a result log, not JSON"),
        (GOOD, "nodes: 4\n", "1: .*YAML"),
    ],
)
def test_the_mistake_is_named_with_its_line_and_fix(old: str, new: str, expected: str) -> None:
    assert decode_json(GOOD.encode(), dict[str, Any]) == load_json(GOOD.encode())
    with pytest.raises(ValueError, match=f"(?s)^line {expected}.*\\. [A-Z]"):
        decode_json(GOOD.replace(old, new, 1).encode(), dict[str, Any])


def test_deep_nesting_is_an_error_of_the_file() -> None:
    for depth in (900, 990, 1000, 5_000):
        text = b'{"facts":' * depth + b"1" + b"}" * depth
        for read in (load_json, lambda data: decode_json(data, dict[str, Any])):
            try:
                read(text)
            except ValueError as error:
                assert "nested too deeply" in str(error)
            else:
                assert depth < 1000
