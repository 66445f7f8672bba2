#: train
#PBS -N {{name}}
#PBS -o {{folder}}/
#PBS -j oe
#PBS -l walltime={{time}}
#PBS -l select={{select}}
#PBS -l place=scatter:excl
#PBS -J 0-{{last}}
#: last
#PBS -N {{name}}
#PBS -o {{folder}}/
#PBS -j oe
#PBS -l walltime={{time}}
#PBS -l select=1:ncpus=1
#: queue
#PBS -A {{account}}
#PBS -q {{partition}}
#PBS {{options}}
#: folder
cd "$PBS_O_WORKDIR"
#: meet
# Say where the ranks meet, as mpiexec does not: at the first host of the job, where it puts rank 0. A launcher must pass
# these variables on to all ranks, as PALS and MPICH do by default.
meet() {
  read -r MASTER_ADDR <"$PBS_NODEFILE"
  MASTER_ADDR="${MASTER_ADDR%%.*}{{suffix}}"
  MASTER_PORT=$(({{first_port}} + (${PBS_JOBID%%[!0-9]*} + index) % {{ports}}))
  export MASTER_ADDR MASTER_PORT
}
#: index
index=${PBS_ARRAY_INDEX:-0}
#: again
again() { echo "call the script again to continue" >&2; }
