"""What all benchmarks share; it knows no benchmark."""

import os
import sys

if sys.version_info < (3, 11):  # noqa: UP036  (every command imports this file first, and any Python 3 can read it)
    sys.stderr.write("error: needs Python 3.11 or newer; this is {}.{}\n".format(*sys.version_info[:2]))
    sys.exit(2)

# Let waiting threads of GNU's OpenMP sleep soon. By default they spin for milliseconds, which on a machine with other
# work takes whole time slices from the computing threads. It is read when torch is loaded, so it is set before.
os.environ.setdefault("GOMP_SPINCOUNT", "3000")
# When rank 0 is lost each other rank would print dozens of lines of torch's stack before the one that says so.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
