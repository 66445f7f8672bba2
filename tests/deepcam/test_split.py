"""deepcam.split: the reference's split of the published snapshots."""

import os
import random
import shutil

import pytest

from deepcam import split
from deepcam.split import SPLITS
from tests.common.files import read_errors


def names(n):
    return [f"data-{1979 + i // 2920}-{i % 12 + 1:02d}-{i % 28 + 1:02d}-{i % 8:02d}-{i}.h5" for i in range(n)]


def source_of(tmp_path, n):
    folder = tmp_path / "data" / "all"
    folder.mkdir(parents=True)
    for name in names(n):
        (folder / name).write_text(name)
    (folder / "stats.h5").write_text("no snapshot")
    return folder


def shuffled_by_hand(items, seed):
    """NumPy's old shuffle, from its definition: a bare seeding of MT19937, masked rejection, swaps from the end."""
    state = [seed]
    for i in range(1, 624):
        state.append((1812433253 * (state[-1] ^ state[-1] >> 30) + i) & 0xFFFFFFFF)
    generator = random.Random()
    generator.setstate((3, (*state, 624), None))
    items = sorted(items)
    for last in range(len(items) - 1, 0, -1):
        while (other := generator.getrandbits(32) & (1 << last.bit_length()) - 1) > last:
            pass
        items[last], items[other] = items[other], items[last]
    return items


def test_the_published_counts_come_out():
    counts = [len(part) for part in split.split_names([str(i) for i in range(151_583)]).values()]
    assert counts == [121_266, 15_158, 15_159]


def test_the_order_is_the_references():
    sides = split.split_names(names(50)[::-1])
    order = shuffled_by_hand(names(50), 12345)
    assert (sides["train"], sides["validation"], sides["test"]) == (order[:40], order[40:45], order[45:])


def test_links_are_made_once_completed_and_can_be_moved(tmp_path, capsys):
    source, out = source_of(tmp_path, 21), tmp_path / "data"
    assert split.main([str(source), str(out)]) == 0
    told = capsys.readouterr().out
    assert "16 for train, 2 for validation, 3 for test" in told and "151,583" in told
    found = {side: set(os.listdir(out / side)) for side in SPLITS}
    assert found == {side: set(part) for side, part in split.split_names(names(21)).items()}
    gone = out / "train" / min(found["train"])
    gone.unlink()
    assert split.main([str(source), str(out)]) == 0
    moved = shutil.move(out, tmp_path / "elsewhere")
    for side in SPLITS:
        assert all((moved / side / name).read_text() == name for name in found[side])


def foreign_file(out):
    (out / "train").mkdir(parents=True)
    (out / "train" / "data-1.h5").write_text("")


def another_split(out):
    split.link_splits(out / "all", out)
    (out / "all" / "data-9999.h5").write_text("")


@pytest.mark.parametrize("spoil", [foreign_file, another_split])
def test_what_else_is_there_stays_untouched(tmp_path, capsys, spoil):
    source, out = source_of(tmp_path, 20), tmp_path / "data"
    spoil(out)
    before = {path: path.is_symlink() for path in out.rglob("*")}
    assert "nothing was changed" in read_errors(capsys, split.main([str(source), str(out)]))
    assert {path: path.is_symlink() for path in out.rglob("*")} == before


def test_a_source_without_snapshots_is_told(tmp_path, capsys):
    for folder, message in (("nowhere", "expected the folder with all data-*.h5"), ("", "expected snapshots like")):
        assert message in read_errors(capsys, split.main([str(tmp_path / folder), str(tmp_path)]))
