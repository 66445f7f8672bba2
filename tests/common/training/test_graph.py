"""Work that cannot be recorded, and devices; tests/test_steps.py has work that can."""

import torch

from common.distributed.dist import Dist, alone
from common.training.graph import WARM_UP, Replay, recorder


class Failing:
    """Fails as CUDA does: work raises what is wrong, and the end of the recording another error."""

    def prepare(self, work):
        work()

    def record(self, work):
        try:
            raise RuntimeError("operation not permitted\n(more)")
        finally:
            raise RuntimeError("failed due to a previous error")


def test_work_that_cannot_be_recorded_is_done_once_for_each_batch_and_the_first_error_is_told(capsys):
    total = torch.zeros(())
    replay = Replay(total.add_, Failing(), alone())
    for _ in range(WARM_UP + 3):
        replay(torch.ones(()))
    assert total == WARM_UP + 3
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith("cannot be recorded: operation not permitted")


def test_nothing_is_recorded_on_gpus_of_amd_and_a_line_says_so(monkeypatch, capsys):
    monkeypatch.setattr(torch.version, "hip", "7.0")
    assert recorder("auto", "bf16", Dist(alone().place, torch.device("cuda"))) is None
    (line,) = capsys.readouterr().out.splitlines()
    assert "without CUDA graphs" in line and "ROCm" in line
