#!/bin/bash
# Install DLIO 2.0.0 into an environment of its own; what is there is left.
#
#   install.sh FOLDER
#
# PYTHON names an interpreter of the environment that has the suite (default: python3); torch is taken from there. DLIO
# asks for DALI from NVIDIA's index, which it only uses on request, so it is installed without its dependencies. Of DALI
# its generator of TFRecords needs `tfrecord2idx`, whose index the TensorFlow reader does not read: a stand-in does nothing.
set -euo pipefail
PYTHON=${PYTHON:-python3}
folder=$1
if [ -e "$folder/.installed" ]; then exit 0; fi

"$PYTHON" -m venv "$folder"
pip() { "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "$@"; }
pip pydftracer==1.0.2 hydra-core==1.3.8 omegaconf==2.3.1 mpi4py==4.1.2 mpich==5.0.2 psutil==7.2.2 h5py==3.14.0 \
  pandas==3.1.1 pillow==13.0.0 numpy==2.4.6 tensorflow-cpu==2.21.0
pip --no-deps dlio-benchmark==2.0.0
# Sought after the packages of this environment.
"$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$("$folder/bin/python" -c \
  'import sysconfig; print(sysconfig.get_path("purelib"))')/suite.pth"
printf '#!/bin/sh\n' >"$folder/bin/tfrecord2idx"
chmod +x "$folder/bin/tfrecord2idx"
touch "$folder/.installed"
