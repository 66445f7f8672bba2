"""The cores that a process may use: those it is bound to, and fewer where a container has a quota."""

import pytest

from common import processes
from tests.common.files import write_files

V1 = "4:cpu,cpuacct:/docker/ab\n1:name=systemd:/docker/ab\n"


@pytest.mark.parametrize(
    ("groups", "limits", "cores"),
    [
        ("0::/job/step\n", {"job/cpu.max": "250000 100000", "job/step/cpu.max": "max 100000"}, 3),
        ("0::/job/step\n", {"job/cpu.max": "600000 100000", "job/step/cpu.max": "200000 100000"}, 2),
        ("0::/\n", {"cpu.max": "50000 100000"}, 1),
        ("0::/\n", {"cpu.max": "1600000 100000"}, 8),
        ("0::/\n", {"cpu.max": "broken"}, 8),
        ("0::/../other\n", {}, 8),
        (V1, {"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"}, 4),
        (V1, {"cpu/docker/ab/cpu.cfs_quota_us": "150000", "cpu/docker/ab/cpu.cfs_period_us": "100000"}, 2),
        (V1, {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        (V1, {"cpu/cpu.cfs_quota_us": "400000"}, 8),
        (None, {}, 8),
    ],
)
def test_a_quota_counts_as_cores(groups, limits, cores, tmp_path, monkeypatch):
    write_files(tmp_path, {f"groups/{name}": f"{text}\n".encode() for name, text in limits.items()})
    if groups is not None:
        (tmp_path / "own").write_text(groups)
    monkeypatch.setattr(processes, "OWN_GROUPS", tmp_path / "own")
    found = tuple((str(tmp_path / "groups" / top[15:]), *names) for top, *names in processes.QUOTAS)
    monkeypatch.setattr(processes, "QUOTAS", found)
    monkeypatch.setattr(processes, "bound_cores", lambda: frozenset(range(8)))
    assert processes.usable_cores() == cores
