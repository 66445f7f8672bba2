"""Full disks, made for real: small file systems in memory, which only root may mount."""

import os
import shutil
import subprocess

import pytest
import torch

from common.files import whole_file
from common.ranks.connect import connect
from common.settings.machine import DistConfig
from common.staging.stage import StagingConfig, StagingError, source_files, stage_dataset
from tests.common.commands.test_fetch import TAR, command
from tests.common.data.server import FileServer
from tests.common.files import write_files

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root may mount a file system")


@pytest.fixture
def disk(tmp_path):
    """Mount a file system with these options, as a function; return its folder."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mounted(options):
        words = ["mount", "-t", "tmpfs", "-o", options, "none", folder]
        if subprocess.run(words, check=False, capture_output=True).returncode:
            pytest.skip("mounting is not allowed here")
        return folder

    yield mounted
    subprocess.run(["umount", folder], check=False, capture_output=True)


def write_text(part):
    part.write_text("x" * 2_000_000)


def save(part):
    with part.open("wb") as file:
        torch.save({"weights": torch.zeros(1_000_000)}, file)


@pytest.mark.parametrize("write", [write_text, save])
@pytest.mark.parametrize("options", ["size=1m", "size=9m,nr_inodes=1"])
def test_a_file_that_does_not_fit_is_named(disk, options, write):
    path = disk(options) / "a.pt"
    with (
        pytest.raises(OSError, match=rf"No space left on device(: .* no free inodes.*)?: '{path}'") as raised,
        whole_file(path) as part,
    ):
        write(part)
    assert ("inodes" in str(raised.value)) == ("inodes" in options)
    assert not list(path.parent.iterdir())


@pytest.mark.parametrize(
    ("inodes", "expected"),
    [(12, "20 files to be staged, the file system has room for 7 more"), (25, "no free inodes")],
)
def test_staging_tells_a_lack_of_inodes_from_one_of_bytes(disk, tmp_path, inodes, expected):
    names = {f"{folder}/{i}": i for folder in ("train", "validation") for i in range(10)}
    write_files(tmp_path / "source", dict.fromkeys(names, b"x" * 100))
    config = StagingConfig(mode="shard", stage_dir=disk(f"size=9m,nr_inodes={inodes}") / "staged", workers=1)
    with connect(DistConfig(device="cpu")) as dist, pytest.raises(StagingError, match=expected):
        stage_dataset(source_files(tmp_path / "source", names), tmp_path / "source", config, dist, {})
    assert bool(config.stage_dir.exists()) == (inodes == 25)  # what is finished serves the next call


def test_a_download_that_does_not_fit_goes_on_when_there_is_space(disk, monkeypatch, capsys):
    folder = disk("size=24k") / "data"
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(0, 0, 10**9))
    with FileServer({"/all.tar": TAR}) as server:
        assert command(server.url).main([str(folder)]) == 1
        error = capsys.readouterr().err
        assert error.startswith("error: ") and "No space left on device; finished work is kept: free disk" in error
        (part,) = (folder / "download").iterdir()
        part_size = part.stat().st_size
        assert part_size > 4000 and TAR.startswith(part.read_bytes())
        server.asked.clear()
        subprocess.run(["mount", "-o", "remount,size=1m", folder.parent], check=True)
        assert command(server.url).main([str(folder)]) == 0
        assert server.asked[-1] == ("/all.tar", f"bytes={part_size}-")
