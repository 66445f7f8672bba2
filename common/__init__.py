"""What all benchmarks share; it knows no benchmark."""

import os

# Let waiting threads of GNU's OpenMP sleep soon. By default they spin for milliseconds, which on a machine with other
# work takes whole time slices from the computing threads. It is read when torch is loaded, so it is set before.
os.environ.setdefault("GOMP_SPINCOUNT", "3000")
