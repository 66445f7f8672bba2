#: train
#SBATCH --job-name={{name}}
#SBATCH --output={{folder}}/slurm-{{output}}.txt
#SBATCH --time={{time}}
#SBATCH --nodes={{nodes}}
#SBATCH --ntasks-per-node={{ranks_per_node}}
#SBATCH --exclusive
#SBATCH --cpus-per-task={{cpus_per_task}}
#SBATCH --gpus-per-node={{gpus_per_node}}
#SBATCH --gres=gpu:{{gres}}
#SBATCH --array=0-{{last}}
#SBATCH --signal=USR1@{{grace_s}}
#SBATCH --requeue
#SBATCH --open-mode=append
#: last
#SBATCH --job-name={{name}}
#SBATCH --output={{folder}}/slurm-%x-%j.txt
#SBATCH --time={{time}}
#SBATCH --nodes=1
#SBATCH --ntasks=1
#: queue
#SBATCH --account={{account}}
#SBATCH --partition={{partition}}
#SBATCH --qos={{qos}}
#SBATCH --constraint={{constraint}}
#SBATCH {{options}}
#: meet
# Say where the ranks meet: at their first node, by its name on the fast network. Argument: its position in the job.
meet() {
  local hosts
  mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
  MASTER_ADDR="${hosts[$1]%%.*}{{suffix}}"
  MASTER_PORT=$(({{first_port}} + (SLURM_JOB_ID + $1) % {{ports}}))
  export MASTER_ADDR MASTER_PORT
}
#: index
index=$SLURM_ARRAY_TASK_ID
#: again
again() {
  local job=$SLURM_JOB_ID
  # The number of an array stands for all its tasks; the last task has the same one.
  if [ -n "${SLURM_ARRAY_TASK_ID:-}" ]; then job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID; fi
  if [ "${SLURM_RESTART_COUNT:-0}" -ge {{restarts}} ]; then
    echo "queued again {{restarts}} times already: call the script again to continue" >&2
  else
    scontrol requeue "$job" || echo "cannot be queued again: call the script again to continue" >&2
  fi
}
