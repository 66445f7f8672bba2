"""What every benchmark shares; knows no benchmark."""

import os

# Threads that wait for each other sleep. By default OpenMP lets them spin, which on a machine with other work takes
# whole time slices from those who compute. It is read when torch is loaded, so this has to come before.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
