"""The bash text of the scripts, with @names@ to fill in.

A script knows how a run has ended from one source: ended.json, which the training itself writes (common/ending.py).
"""

from __future__ import annotations

from typing import Final

HEAD: Final = """\
#!/bin/bash
# An MLPerf HPC round, printed by `python -m submission.round --emit @scheduler@`.
# @use@
# Call it again after an interruption: runs with a result are skipped, the others continue.
# Read it before you use it, and adapt it to your machine.
"""
JOBS: Final = "`bash FILE` submits the runs of each benchmark as a job array, and a final job that packages them."
THROUGHPUT: Final = (
    "`bash FILE` submits a job with all instances of each benchmark, and a final job that packages them."
)
LOOP: Final = "`bash FILE` trains the runs one after the other, then writes the package and the report."
FROM_SHARED: Final = """\
# Data are read from shared storage in each epoch: without local_disk in a site profile (--site), no disk is assumed.
"""
START: Final = """\
# shellcheck disable=SC2016  # the suite expands paths in single quotes, on each node
set -euo pipefail
"""
SETUP: Final = """\
set +u  # modules and virtual environments read variables that are not set
@setup@
set -u
"""
ENVIRONMENT: Final = """\
# Load modules and activate the environment here, or in `setup` of a site profile.
"""
CACHES: Final = """\
# A run should start with empty page caches: let the prologue of the job run `sync; echo 3 >/proc/sys/vm/drop_caches` as
# root on each node and set drop_page_cache=prologue; where ranks may do so: drop_page_cache=true.
"""
SUITE: Final = """\
suite() { @suite@ "$@"; }
"""
SUBMIT: Final = """\
jobs=()
submit() {
  local id
  if ! id=$(@command@ "$@"); then
    echo "a job was not submitted: see the message above" >&2
    if [ "${#jobs[@]}" -gt 0 ]; then
      echo "submitted before it, without the job that packages: ${jobs[*]}. Cancel: @cancel@ ${jobs[*]@Q}" >&2
      echo "or let them end; then call this script again, which trains what is missing and packages all" >&2
    fi
    exit 1
  fi
  jobs+=("${id%%;*}")
}
"""
AFTER_ALL: Final = '''"$(IFS=: && echo "afterany:${jobs[*]}")"'''
MINI_DATA: Final = """\
# Generate the data of the mini problem, once.
config=$(suite @benchmark@.train @settings@ --print-config --all)
suite @benchmark@.synthesize "$(sed -n 's/^  data_dir: //p' <<< "$config")" \
  --preset "$(sed -n 's/^variant: //p' <<< "$config")"
"""
ENDINGS: Final = """\
# The training records how it ended in ended.json, and removes it when the run continues. Nothing else tells whether a
# run has its result; the exit status of a launcher does not. A log that has not ended contradicts the record.
how() { if [ -e "$1/@record@" ]; then sed -n 's/^{"how": "\\([a-z_]*\\)".*/\\1/p' "$1/@record@"; fi; }
has_result() {
  case $(how "$1") in @final@) ;; *) return 1 ;; esac
  [ ! -e "$1/@log@" ] || tail -n 1 "$1/@log@" | grep -qF '"key": "run_stop"'
}
"""
OUTCOME: Final = """\
stamp() { stat --format='%i %y' "$1/@record@" 2>/dev/null || true; }
job=@job@
stopped=
# Say what became of a run. Return 0: it has its result; 1: an error; 2: wrong use; 3: continue it later. Set `stopped`
# if a signal has stopped it. Arguments: its folder, the status of the launcher, and the stamp from before the start.
outcome() {
  local ending= owner=none
  # The record of an earlier attempt is still there if this one ended before it owned the folder.
  if [ "$(stamp "$1")" != "$3" ]; then ending=$(how "$1"); fi
  # A training has a lease for its folder while it writes there; one that was killed leaves it behind. Status 3 without
  # a scheduler: the folder may be in use by a training that another call of the script has started.
  if [ "$job:$2" != :3 ] && grep -qsF "\\"job\\": \\"$job\\"" "$1"/lease-*.json; then
    owner=this
  elif compgen -G "$1/lease-*.json" >/dev/null; then
    owner=another
  fi
  case $ending:$2:$owner in
    failed:*)
      echo "$1: failed: $(sed -n 's/.*"cause": "\\(.*\\)", "epochs".*/\\1/p' "$1/@record@")" >&2
      echo "its checkpoints are kept: fix the cause, then give it again" >&2
      return 1
      ;;
    # Without a record: the status of the training itself, which had not started, or was waiting for its earlier start;
    # killed by SIGINT, SIGUSR1 or SIGTERM; by timeout.
    stopped:* | :3:none | :3:this | :124:* | :130:* | :138:* | :143:*)
      echo "$1: stopped" >&2
      stopped=yes
      return 3
      ;;
    :2:*)
      echo "$1: not started: see the message above" >&2
      return 2
      ;;
    :*:this)
      echo "$1: killed (exit status $2): its checkpoints are kept, give it again" >&2
      return 3
      ;;
    :*:another)
      echo "$1: another job trains it, or was killed (exit status $2): see the message above" >&2
      echo "if none trains it, give it again: its checkpoints are kept" >&2
      return 3
      ;;
    :*)
      echo "$1: not started, or ended before it could record how (exit status $2): see the message above" >&2
      echo "when the cause is fixed, give it again" >&2
      return $(($2 > 128 ? 3 : 1))
      ;;
    *) echo "$1: $ending" ;;
  esac
}
"""
RUN: Final = """\
run=@out@/@benchmark@/run_$index
if has_result "$run"; then
  echo "$run: $(how "$run")"
  exit 0
fi
mkdir -p "$run"
"""
JOB_KEY: Final = """\
# A secret of this job, by which its ranks know each other; srun passes it on.
export MLPERF_HPC_JOB_KEY="$(od -An -N32 -tx1 /dev/urandom | tr -d ' \\n')"
"""
TRAIN: Final = """\
before=$(stamp "$run")
status=0
@launch@ \\
  @benchmark@.train @settings@ \\
  output_dir="$run" train.seed="${seeds[index]}" --auto-resume || status=$?
code=0
outcome "$run" "$status" "$before" || code=$?
if [ -n "$stopped" ]; then again; fi
exit "$code"
"""
INSTANCES: Final = """\
run=@out@/@benchmark@/throughput
mkdir -p "$run"
processes=() stamps=()
for ((i = 0; i < @count@; i++)); do
  if has_result "$run/instance_$i"; then
    echo "$run/instance_$i: $(how "$run/instance_$i")"
    continue
  fi
  stamps[i]=$(stamp "$run/instance_$i")
  # The training adds instance_I to output_dir and I to the seed. Each launcher stages the data to its own nodes.
  @launch@ \\
    @benchmark@.train @settings@ \\
    output_dir="$run" train.seed="$seed" instances.first="$i" instances.count=1 --auto-resume &
  processes[i]=$!
done
code=0
for i in "${!processes[@]}"; do
  status=0
  wait "${processes[i]}" || status=$?
  outcome "$run/instance_$i" "$status" "${stamps[i]}" || code=$((code > $? ? code : $?))
done
if [ -n "$stopped" ]; then again; fi
exit "$code"
"""
STEP: Final = (
    ' --nodes=@nodes@ --ntasks=@ranks@ --relative="$((i * @nodes@))" --output="$run/output_$i.txt" --open-mode=append'
)
"""An instance has nodes of its own, all of each. It is not --exact: that binds each rank to one CPU by default."""
DESCRIBE: Final = """\
# Describe the system, on a node that trains; the description may be completed by hand.
describe() {
  local settings system
  settings=$(suite @benchmark@.train @settings@ --print-config --all) || return
  setting() { sed -n "s/^  $1: //p" <<<"$settings"; }
  system=@out@/$(setting platform).json
  for file in @out@/package/*/systems/"${system##*/}"; do
    if [ -e "$file" ]; then system=$file; fi
  done
  if [ ! -e "$system" ]; then
    suite submission.system -o "$system" --set system_name="$(setting platform)" number_of_nodes=@nodes@ \\
      submitter="$(setting org)" division="$(setting division)" status="$(setting status)" >&2 || return
  fi
  echo "$system"
}
"""
DESCRIBE_FIRST: Final = """\
if [ "${index:-0}" -eq 0 ]; then
  describe >/dev/null || echo "the system is not described here; the job that packages will try again" >&2
fi
"""
PACKAGE: Final = """\
runs=()
for run in @runs@; do
  if has_result "$run"; then runs+=("$run"); fi
done
if [ "${#runs[@]}" -eq 0 ]; then
  echo "no run has a result: nothing to package" >&2
  exit 1
fi
suite submission.assemble "${runs[@]}" -o @out@/package --system "$system"@options@
suite submission.report @out@/package -o @out@/report.html --force@mini@
suite submission.summary @out@/package@mini@
suite compliance.check @out@/package@mini@
"""
