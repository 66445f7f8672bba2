#: describe
# Describe the system, on a node that trains; the description may be completed by hand.
describe() {
  local system={{out}}/{{system}}
  for file in {{out}}/package/*/systems/{{system}}; do
    if [ -e "$file" ]; then system=$file; fi
  done
  if [ ! -e "$system" ]; then
    suite submission.system -o "$system" --set {{fields}} >&2 || return
  fi
  echo "$system"
}
#: describe_first
if [ "${index:-0}" -eq 0 ]; then
  describe >/dev/null || echo "the system is not described here; the job that packages will try again" >&2
fi
#: package
system={{system}}
runs=()
for run in {{runs}}; do
  if has_result "$run"; then runs+=("$run"); fi
done
if [ "${#runs[@]}" -eq 0 ]; then
  echo "no run has a result: nothing to package" >&2
  exit 1
fi
suite submission.assemble "${runs[@]}" -o {{out}}/package --system "$system" --draft{{options}}
suite submission.report {{out}}/package -o {{out}}/report.html --force{{mini}}
suite submission.summary {{out}}/package{{mini}}
suite compliance.check {{out}}/package{{mini}}
