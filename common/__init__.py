"""What every benchmark shares; knows no benchmark."""

import os

from common.extras import explain_missing

# Threads of GNU's OpenMP that wait for each other soon sleep. By default they spin for milliseconds, which on a machine
# with other work takes whole time slices from those who compute. It is read when torch is loaded, so it comes before.
os.environ.setdefault("GOMP_SPINCOUNT", "3000")

explain_missing(__name__)
