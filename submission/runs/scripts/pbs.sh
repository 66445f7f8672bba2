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
#: index
index=${PBS_ARRAY_INDEX:-0}
#: again
again() { echo "call the script again to continue" >&2; }
