"""What does not fit into memory says which keys to change."""

import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from common.ranks.dist import make_single_dist  # noqa: E402  (needs torch)
from common.settings.run import TrainConfig  # noqa: E402
from common.training.faults import OutOfMemoryError, explain_out_of_memory  # noqa: E402


class Config:
    train = TrainConfig(global_batch_size=64, accumulation=2, eval_batch_size=16)
    data = None


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried ..."),
        MemoryError("Unable to allocate 7.28 TiB"),
    ],
)
def test_how_libraries_say_that_there_is_no_memory(error):
    with pytest.raises(OutOfMemoryError) as raised, explain_out_of_memory(Config, make_single_dist()):
        raise error
    for part in ("computes 32 sample(s)", "train.accumulation (now 2, at most 64)", "train.eval_batch_size below 16"):
        assert part in str(raised.value)
    with pytest.raises(RuntimeError, match="shapes"), explain_out_of_memory(Config, make_single_dist()):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")


LIMITED = """
import resource, sys
from pathlib import Path
from cosmoflow.train import main
taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + 2**28,) * 2)
sys.exit(main())
"""


def test_what_does_not_fit_has_no_traceback(tmp_path, monkeypatch):
    from cosmoflow.synthesize import main as synthesize  # here, since only this test needs it

    monkeypatch.chdir(tmp_path)
    assert synthesize("data --grid 16 --particles 16 --train 24 --validation 2 --workers 1".split()) == 0
    words = "mini data.data_dir=data data.sample_shape=[16,16,16,4] data.augment=none output_dir=run"
    words += " model.conv_layers=2 model.fc1=65_536"  # 0.5 GB of weights
    ran = subprocess.run([sys.executable, "-c", LIMITED, *words.split()], capture_output=True, text=True, check=False)
    expected = "error: the node has not enough memory for this process: a rank computes 16 sample(s)"
    assert ran.returncode == 1 and ran.stderr.startswith(expected), ran.stderr
    assert "a smaller network" in ran.stderr and not Path("run").exists()
