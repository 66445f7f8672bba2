"""The demonstration ends as its stories say."""

import pytest

from compliance.demo import STORIES, main
from compliance.samples.log import SampleLog


def test_demo(tmp_path, capsys):
    log = tmp_path / "mine.txt"
    log.write_bytes(SampleLog("oc20").bytes())
    assert main([str(log)]) == 0
    out = capsys.readouterr().out
    assert all(title in out for title, *_ in STORIES)
    assert out.count("(exit status 1, as expected)") == 3 and "oc20 closed" in out


def test_the_examples_can_be_kept(tmp_path, capsys):
    kept = tmp_path / "examples"
    assert main(["--keep", str(kept)]) == 0
    assert {path.name for path in kept.iterdir()} >= {"result_0.txt", "stopped_early.txt", "University"}
    assert capsys.readouterr().out.startswith(f"$ cd {kept}")
    with pytest.raises(SystemExit, match="2"):
        main(["--keep", str(kept)])
    assert "exists; name a new folder" in capsys.readouterr().err


def test_demo_notices_a_checker_that_says_otherwise(monkeypatch, capsys):
    monkeypatch.setattr("compliance.demo.check", lambda paths: 0)
    assert main([]) == 1
    assert "ended unexpectedly" in capsys.readouterr().err
