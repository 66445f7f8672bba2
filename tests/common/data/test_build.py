"""Work in several processes: one that is killed is told, and errors of the function arrive."""

import gc
import os
import struct
import threading
from multiprocessing.connection import Connection

import pytest

from common.console import open_bar
from common.data.build import BuildError, DatasetPlan, Heading, Item, Journal, Workers, build_dataset, readable_bytes
from common.data.manifest import ManifestError
from common.processes import ProcessKilledError, in_processes


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_with_their_items(workers):
    assert sorted(in_processes(abs, [-1, 2, -3], workers)) == [(-3, 3), (-1, 1), (2, 2)]


class TwoWordsError(Exception):
    """An error that cannot be unpickled."""

    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


def die_in_the_middle(item):
    """Send the beginning of a result, and end."""
    for one in gc.get_objects():
        if isinstance(one, Connection) and one.writable and not one.closed:
            os.write(one.fileno(), struct.pack("!i", 1000) + b"half")
    os._exit(9)


def raise_two_words(item):
    raise TwoWordsError(item, "more")


def raise_a_lock(item):
    raise RuntimeError(threading.Lock())


@pytest.mark.parametrize(
    ("function", "items", "error", "told"),
    [
        (os._exit, [1, 2, 3], ProcessKilledError, "use fewer workers"),
        (die_in_the_middle, [1, 2], ProcessKilledError, "use fewer workers"),
        (int, ["1", "2", "no number"], ValueError, "no number"),
        (raise_two_words, [1], RuntimeError, "(?s)1 and more.* in raise_two_words"),  # errors that cannot be sent
        (raise_a_lock, [1], RuntimeError, "(?s)cannot pickle.* in raise_a_lock"),
    ],
)
def test_a_killed_process_and_an_error_end_the_work(function, items, error, told):
    with pytest.raises(error, match=told):
        list(in_processes(function, items, 2))


def write_item(item, folder):
    (folder / item.files[0]).write_text(item.name)


def test_two_items_cannot_make_one_file():
    items = (Item("a", ("train/1",), None), Item("b", ("train/2", "train/1"), None))
    with pytest.raises(BuildError, match="b and a would both become train/1"):
        _ = DatasetPlan("cosmoflow", "synthetic", {}, items, print, 1).files


def test_two_processes_do_not_build_the_same_part(tmp_path):
    plan = DatasetPlan("cosmoflow", "synthetic", {}, (Item("a", ("a",), None), Item("b", ("b",), None)), write_item, 1)
    with Journal(tmp_path).open_part(Heading("cosmoflow", "synthetic", {}, 2), 0, 2):
        with pytest.raises(ManifestError, match="is being filled by another process; wait"):
            build_dataset(plan, tmp_path, Workers(1, 0, 2))
        assert build_dataset(plan, tmp_path, Workers(1, 1, 2)).generated == 1  # the other task of the same job


def test_bytes_are_told_as_people_say_them():
    assert [readable_bytes(n) for n in (512, 1500, 173_000_000, 2e15)] == ["512 B", "1.5 kB", "173 MB", "2e+03 TB"]


def test_long_work_prints_lines_without_a_terminal_and_short_work_none(capsys, monkeypatch):
    list(open_bar(range(3), desc="short"))
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr("common.console.PAUSE_S", 0.0)
    with open_bar(total=2, unit=" files", desc="data") as bar:
        bar.update()
    lines = capsys.readouterr().err.splitlines()
    assert lines and lines[-1].startswith("data: 1 of 2 files, 00:00 so far, about")
    list(open_bar(range(3), disable=True))
    assert capsys.readouterr() == ("", "")
