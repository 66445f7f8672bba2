"""bench/feed.py: what an emulated accelerator is fed with is counted, and what disturbed it is told."""

import json
import sys

import numpy as np
import pytest

from cosmoflow.data import tfrecord
from tests.bench_script import BENCH, bench_script
from tests.problems import run_process

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def feed():
    return bench_script("feed")


def page(feed, **changes):
    result = bench_script("records").read_record("feed")
    result["rows"] = [row | changes for row in result["rows"]]
    return feed.page(result)


def test_files_that_came_from_memory_are_not_called_cold(feed):
    assert "not cold" not in page(feed, from_storage=0.95)
    assert page(feed, from_storage=0.5).count("**50%: not cold**") == 4


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"utilisation": 0.5, "cores_used": 1.6, "cores_per_accelerator": 2.1}, 8),
        ({"utilisation": 0.5, "cores_used": 1.8, "cores_per_accelerator": 2.1}, 0),
        ({"utilisation": 0.5, "cores_used": 0.5, "cores_per_accelerator": 0.9}, 0),
        ({"utilisation": 0.8, "cores_used": 1.6, "cores_per_accelerator": 2.1}, 0),
    ],
)
def test_a_row_that_did_not_get_the_cores_is_told(changes, told, feed):
    assert page(feed, **changes).count(": disturbed**") == told


@pytest.mark.parametrize("words", [["--accelerators", "0"], ["--files", "1"], ["--accelerators", "4", "--files", "7"]])
def test_too_few_of_something_is_refused(words, feed, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["feed.py", *words])
    with pytest.raises(SystemExit) as ended:
        feed.main()
    assert ended.value.code == 2 and "expected a" in capsys.readouterr().err


def test_the_errors_of_the_rank_that_failed_are_shown(feed, tmp_path, monkeypatch):
    reader = tmp_path / "reader.py"
    reader.write_text("import sys\nif '\"rank\": 1' in sys.argv[1]: sys.exit('no memory')\nprint('ready'); input()\n")
    monkeypatch.setattr(feed, "READER", reader)
    bench = feed.Bench.__new__(feed.Bench)  # without its files
    bench.folder = tmp_path
    plan = feed.Plan(str(tmp_path), 2, cold=False, step_s=0, threads=1, epochs=1, ranks=2)
    with pytest.raises(SystemExit, match="rank 1 failed:\nno memory"):
        bench.reports([bench.start(feed.replace(plan, rank=rank)) for rank in range(2)])


def test_removing_files_from_the_cache_is_not_counted(monkeypatch, tmp_path):
    reader = bench_script("feed_reader")
    data, waits = tmp_path / "data", []
    data.write_bytes(bytes(1 << 20))
    monkeypatch.setattr(reader, "drop", lambda paths: data.read_bytes())
    monkeypatch.setattr(reader, "start", lambda: waits.append(epochs.number))
    (tmp_path / "train").mkdir()
    epochs = reader.Epochs(reader.Plan(str(tmp_path), 0, cold=True, step_s=0, threads=1, epochs=2))
    for _ in range(3):
        epochs.begin()
        with data.open("rb") as file:
            file.read(1 << 18)
        epochs.end()
    assert waits == [2] and 2 << 18 <= epochs.total["read_bytes"] < 3 << 18


def test_an_accelerator_is_fed_with_its_part_of_the_files(tmp_path):
    folder = tmp_path / "train"
    folder.mkdir()
    x, y = np.zeros((16, 16, 16, 4), np.int16), np.zeros(4, np.float32)
    for number in range(8):
        tfrecord.write_sample(folder / f"{number}.tfrecord", x, y, compress=False)
    plan = {"folder": str(tmp_path), "files": 6, "cold": False, "step_s": 0.02, "threads": 2, "epochs": 3}
    plan |= {"shape": x.shape, "rank": 1, "ranks": 2}
    ran = run_process(sys.executable, "-P", f"{BENCH}/feed_reader.py", json.dumps(plan), input="\n")
    assert ran.returncode == 0, ran.stderr
    ready, text = ran.stdout.splitlines()
    found = json.loads(text)
    size = (folder / "0.tfrecord").stat().st_size
    assert ready == "ready" and found["samples"] == 9
    assert 9 * size <= found["read_bytes"] < 10 * size and found["stored_bytes"] < size
    assert found["wall_s"] >= 9 * 0.02 and all(0.3 < value <= 1 for value in found["utilisation"])
