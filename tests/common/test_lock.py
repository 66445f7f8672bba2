"""The lock of the system on a file: alone or shared, until the last process that has it ends."""

import pytest

from common.locks import LockedError, LockFile


def test_a_lock_is_held_alone_or_shared_and_names_its_holder(tmp_path):
    first, second, third = (LockFile(tmp_path / "lock") for _ in range(3))
    first.take("7 (train mini)")
    for wanted in (lambda: second.take("8"), second.share):
        with pytest.raises(LockedError, match=r"in use by process 7 \(train mini\), or one that it started"):
            wanted()
    first.share()
    second.share()
    with pytest.raises(LockedError):
        third.take("9")
    assert not first.is_last()
    second.release()
    assert first.is_last()
    first.release(remove=True)
    assert not first.path.exists()
    third.take("9")
    assert third.path.read_text() == "9"
    third.release()


def test_a_lock_that_goes_out_of_use_is_free_and_a_link_is_not_followed(tmp_path):
    lock = LockFile(tmp_path / "lock")
    lock.take("1")
    del lock
    LockFile(tmp_path / "lock").take("2")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="link"):
        LockFile(tmp_path / "link").take("3")
    assert not (tmp_path / "target").exists()
