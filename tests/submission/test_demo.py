"""`make demo`: it says what it needs before it starts; its parts have their own tests."""

import pytest

from compliance.model.judging import FAIL, INCOMPLETE
from submission import demo


@pytest.mark.parametrize(("wrong", "verdict", "status"), [(0, INCOMPLETE, 0), (1, INCOMPLETE, 1), (0, FAIL, 1)])
def test_the_demonstration_says_what_it_needs_before_it_starts(wrong, verdict, status, tmp_path, monkeypatch, capsys):
    said = []

    def check(paths, keep):
        said.append(capsys.readouterr().out)
        assert paths == ["mine.txt"]
        return wrong

    def train(plan, output, *_):
        assert [(series.benchmark, series.runs) for series in plan] == [("oc20", 1)] and output == tmp_path
        return verdict

    (tmp_path / "report.html").touch()
    monkeypatch.setattr(demo, "demonstrate", check)
    monkeypatch.setattr(demo, "make_round", train)
    monkeypatch.setattr(demo, "interrupt_by_signals", lambda: None)
    assert demo.main(["mine.txt", "-o", str(tmp_path), "--benchmarks", "oc20"]) == status
    assert "7 to 14 minutes on two cores, and 86 MB of disk" in said[0]
    assert "oc20 trained and packaged" in capsys.readouterr().out
