# The parts of the scripts of every scheduler. {{name}} is replaced by a value: a line is left out where it is empty, and
# repeated where there are several.
#: head
#!/bin/bash
# {{title}}
# `bash FILE` {{use}}
# Call it again after an interruption: runs with a result are skipped, the others continue.
# Read it before you use it, and adapt it to your machine.
# Site profile: {{note}}
# {{problem}}
# {{shared}}
#: use
submits the runs as arrays of jobs, and a last job for what follows from them.
#: begin
# shellcheck disable=SC2016  # the suite expands paths in single quotes, on each node
set -euo pipefail
export {{folders}}
#: folder
#: setup
set +u  # modules and virtual environments read variables that are not set
{{setup}}
set -u
#: suite
# shellcheck disable=SC2317  # not every job calls it
suite() { {{suite}}python -m "$@"; }
#: caches
# A run should start with empty page caches: let the prologue of the job run `sync; echo 3 >/proc/sys/vm/drop_caches` as
# root on each node and set drop_page_cache=prologue; where ranks may do so: drop_page_cache=true.
#: submit
jobs=()
submit() {
  local id
  if ! id=$({{submit}} "$@"); then
    echo "a job was not submitted: see the message above" >&2
    if [ "${#jobs[@]}" -gt 0 ]; then
      echo "submitted before it, without the last job: ${jobs[*]}. Cancel: {{cancel}} ${jobs[*]@Q}" >&2
      echo "or let them end; then call this script again, which makes what is missing" >&2
    fi
    exit 1
  fi
  jobs+=("${id%%;*}")
}
#: data
# Generate the data of a mini problem, unless they are complete.
[ -e {{folder}}/{{manifest}} ] || suite {{benchmark}}.synthesize {{folder}} --preset {{variant}}
#: endings
# A training records how it ended in {{ended}}, and removes it when the run continues. Nothing else tells whether it has
# its result; the exit status of a launcher does not. A log that has not ended contradicts the record. Other runs have
# their result when its file is there.
result={{ended}}
how() {
  if [ "$result" != {{ended}} ]; then
    if [ -e "$1/$result" ]; then echo "done"; fi
  elif [ -e "$1/$result" ]; then
    sed -n 's/^{"how": "\([a-z_]*\)".*/\1/p' "$1/$result"
  fi
}
has_result() {
  case $(how "$1") in done | {{final}}) ;; *) return 1 ;; esac
  [ ! -e "$1/{{log}}" ] || tail -n 1 "$1/{{log}}" | grep -qF '"key": "run_stop"'
}
#: keep_plan
# Keep the plan of a run in its folder; end if that has another one, because results of both would be mixed. A job of
# instances may continue with more of them, and on other ranks.
keep_plan() {
  local file=$1/{{record}}
  mkdir -p "$1"
  if [ -s "$file" ] && [ "$(comparable <"$file")" != "$(comparable <<<"$2")" ]; then
    echo "$file: the run has another plan than this script, such as another seed; print the script again, which" >&2
    echo "keeps the seeds of runs that have begun, or choose another folder with -o" >&2
    exit 2
  fi
  printf '%s\n' "$2" >"$file"
}
comparable() { tr -d ' \n' | sed -E '/"instances":0/!s/"(ranks|instances)":[0-9]+//g'; }
#: outcome
stamp() { stat --format='%i %y' "$1/$result" 2>/dev/null || true; }
job={{job}}
stopped=
# Say what became of a run. Return 0: it has its result; 1: an error; 2: wrong use; 3: continue it later. Set `stopped`
# if a signal has stopped it. Arguments: its folder, the status of the launcher, and the stamp from before the start.
outcome() {
  local ending="" owner=none
  # The record of an earlier attempt is still there if this one ended before it owned the folder.
  if [ "$(stamp "$1")" != "$3" ]; then ending=$(how "$1"); fi
  # A training has a lease for its folder while it writes there; one that was killed leaves it behind. Status 3 without
  # a scheduler: the folder may be in use by a training that another call of the script has started.
  if [ "$job:$2" != :3 ] && grep -qsF "\"job\": \"$job\"" "$1"/lease-*.json; then
    owner=this
  elif compgen -G "$1/lease-*.json" >/dev/null; then
    owner=another
  fi
  case $ending:$2:$owner in
    failed:*)
      echo "$1: failed: $(sed -n 's/.*"cause": "\(.*\)", "epochs".*/\1/p' "$1/$result")" >&2
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
#: run
case $index in
{{table}}
esac
if has_result "$run"; then
  echo "$run: $(how "$run")"
  exit 0
fi
keep_plan "$run" "$plan"
#: launch
{{meet}} 0
before=$(stamp "$run")
status=0
{{launch}}"${words[@]}" || status=$?
code=0
outcome "$run" "$status" "$before" || code=$?
if [ -n "$stopped" ]; then again; fi
exit "$code"
#: instances
run={{folder}}
keep_plan "$run" {{plan}}
#: launch_instances
processes=() stamps=()
for ((i = 0; i < {{count}}; i++)); do
  if has_result "$run/instance_$i"; then
    echo "$run/instance_$i: $(how "$run/instance_$i")"
    continue
  fi
  stamps[i]=$(stamp "$run/instance_$i")
  {{meet}} "$((i * {{nodes}}))"
  # The training adds instance_I to output_dir and I to the seed. Each launcher stages the data to its own nodes.
  words=({{words}} instances.first="$i" instances.count=1 {{options}})
  {{launch}}"${words[@]}" &
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
#: step
 --nodes={{nodes}} --ntasks={{ranks}} --relative="$((i * {{nodes}}))" --output="$run/output_$i.txt" --open-mode=append
