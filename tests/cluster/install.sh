#!/bin/bash
# Install what tests/cluster needs, as root on Debian or Ubuntu: Slurm, munge, Open MPI, MPICH, and mpi4py built for each.
#
#   install.sh FOLDER        mpi4py goes to FOLDER/openmpi and FOLDER/mpich; what is there is left
#   install.sh --possible    install nothing; exit status 0 where the tests can run, else 1 and one line that says why not
# PYTHON names the interpreter (default: python3).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PYTHON=${PYTHON:-python3}
PACKAGES=(slurmctld slurmd slurm-client munge iproute2 util-linux gcc libc6-dev openmpi-bin libopenmpi-dev mpich libmpich-dev)
# What is looked for: if one is missing, all packages are installed.
COMMANDS=(slurmctld slurmd sbatch munged ip unshare nsenter gcc mpirun.openmpi mpicc.openmpi mpirun.mpich mpicc.mpich)

why_not() {
  [ "$(uname -s)" = Linux ] || { echo "this is not Linux"; return; }
  [ "$(id -u)" = 0 ] || { echo "needs root, for namespaces"; return; }
  command -v apt-get >/dev/null || { echo "needs Debian or Ubuntu: apt-get is not here"; return; }
  unshare --pid --net --uts --mount --ipc --fork --mount-proc true 2>/dev/null || echo "this machine does not allow new namespaces"
}

reason=$(why_not)
if [ -n "$reason" ]; then echo "$reason"; exit 1; fi
if [ "$1" = --possible ]; then exit 0; fi

for name in "${COMMANDS[@]}"; do
  if ! command -v "$name" >/dev/null; then
    echo "installing ${PACKAGES[*]}"
    export DEBIAN_FRONTEND=noninteractive
    timeout 240 apt-get update -qq
    timeout 480 apt-get install -qq --yes --no-install-recommends "${PACKAGES[@]}" >/dev/null
    break
  fi
done

# What an MPI's mpi4py depends on is in the name of its stamp.
stamp() {
  local version
  version=$(dpkg-query -W -f '${Version}' "lib$1-dev" | tr -c '[:alnum:].' _)
  echo "$folder/$1/.built-$("$PYTHON" -c 'import sys; print(sys.implementation.cache_tag)')-$version"
}

build() { # openmpi|mpich
  local flags
  # The headers of this MPI first: pip compiles with those of the virtual environment, where the extra `mpi` puts others.
  # Without optimisation, which takes minutes for nothing.
  flags="-O0 -g0 $(mpicc."$1" -show | grep -o -e '-I[^ ]*' | tr '\n' ' ')"
  echo "building mpi4py for $1"
  rm -rf "${folder:?}/$1"
  MPICC=mpicc.$1 CFLAGS=$flags timeout 300 "$PYTHON" -m pip install --quiet --disable-pip-version-check --no-input \
    --no-cache-dir --no-binary mpi4py --constraint constraints.txt --target "$folder/$1" mpi4py
  PYTHONPATH=$folder/$1 "$PYTHON" -c 'from mpi4py import MPI; print("mpi4py for", *MPI.get_vendor())'
  touch "$(stamp "$1")"
}

folder=$1
builds=()
for mpi in openmpi mpich; do
  if [ ! -e "$(stamp "$mpi")" ]; then
    build "$mpi" &
    builds+=($!)
  fi
done
for pid in "${builds[@]}"; do wait "$pid"; done
