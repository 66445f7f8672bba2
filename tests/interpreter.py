"""For tests of Triton kernels: on a GPU, or where there is none in Triton's interpreter.

The interpreter has to be chosen before Triton is imported, so that one test of a file runs the others in a process of
their own.
"""

import os
import sys
from importlib.util import find_spec

import pytest
import torch

from tests.problems import run_process

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if torch.cuda.is_available() and not INTERPRETED else "cpu"

needs_triton = pytest.mark.skipif(not find_spec("triton"), reason="needs Triton")
needs_gpu = pytest.mark.skipif(DEVICE == "cpu" and not INTERPRETED, reason="needs a GPU, or Triton's interpreter")
not_interpreted = pytest.mark.skipif(INTERPRETED, reason="this is the interpreter")


def _let_loops_end_where_data_say():
    """Let bounds of loops be numbers that a kernel loads: Triton's interpreter converts them as NumPy 2.4 forbids."""
    from triton.runtime import interpreter

    patch_tensor = interpreter._patch_lang_tensor

    def patch_index(tensor, scope):
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch_index


if INTERPRETED and find_spec("triton"):
    _let_loops_end_where_data_say()


def run_in_the_interpreter(file):
    """Run the tests of a file in the interpreter; all that need a GPU must run there, and pass."""
    words = ["-m", "pytest", "-p", "no:cacheprovider", "--exhaustive", "all", file]
    done = run_process(sys.executable, *words, variables={"TRITON_INTERPRET": "1"})
    assert done.returncode == 0, done.stdout
    assert "GPU" not in done.stdout, "a test was left out"
