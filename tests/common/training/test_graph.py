"""Work that cannot be recorded; tests/test_steps.py has work that can."""

from types import SimpleNamespace

import pytest
import torch

from common.ranks.dist import Dist, make_single_dist
from common.training.graph import WARM_UP, Replay, make_recorder
from tests.tape import Tapes


class Failing(Tapes):
    """Fails as CUDA does: work raises what is wrong, and the end of the recording another error."""

    def record(self, work):
        try:
            raise RuntimeError("operation not permitted\n(more)")
        finally:
            raise RuntimeError("failed due to a previous error")


def test_work_that_cannot_be_recorded_is_done_once_for_each_batch_and_the_first_error_is_told(capsys):
    total = torch.zeros(())
    replay = Replay(total.add_, Failing(), make_single_dist())
    for _ in range(WARM_UP + 3):
        replay(torch.ones(()))
    assert total == WARM_UP + 3
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith("cannot be recorded: operation not permitted")


@pytest.mark.parametrize("fail", [0, 1])
def test_work_with_messages_is_recorded_by_all_ranks_or_by_none(fail, capsys):
    total, tapes = torch.zeros(()), Tapes()
    others = SimpleNamespace(all_reduce=lambda failed, _operation: failed | fail)
    replay = Replay(total.add_, tapes, make_single_dist(), others)
    for _ in range(WARM_UP + 3):
        replay(torch.ones(()))
    assert total == WARM_UP + 3 and (tapes.played == 0) == bool(fail)
    assert capsys.readouterr().out.count("another rank cannot") == fail


def test_after_the_warm_up_other_shapes_are_done_as_they_are(capsys):
    total, tapes = torch.zeros(()), Tapes()
    replay = Replay(lambda x: total.add_(x.sum()), tapes, make_single_dist())
    for _ in range(WARM_UP + 1):
        replay(torch.ones(1))
    replay.seal()
    for size in (2, 2, 2, 2, 2, 3, 1):
        replay(torch.ones(size))
    assert total == WARM_UP + 1 + 14 and tapes.recorded == 1 and tapes.played == 2
    assert capsys.readouterr().out.count("not recorded before the run") == 1
    replay.close()
    assert not tapes.alive
    with pytest.raises(RuntimeError, match="after the end"):
        replay(torch.ones(1))


def test_nothing_is_recorded_on_gpus_of_amd_and_a_line_says_so(monkeypatch, capsys):
    monkeypatch.setattr(torch.version, "hip", "7.0")
    assert make_recorder("auto", "bf16", Dist(make_single_dist().position, torch.device("cuda"))) is None
    (line,) = capsys.readouterr().out.splitlines()
    assert "without CUDA graphs" in line and "ROCm" in line
