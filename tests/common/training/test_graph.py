"""Work that cannot be recorded; tests/test_steps.py has work that can."""

import torch

from common.distributed.dist import alone
from common.training.graph import WARM_UP, Replay


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
