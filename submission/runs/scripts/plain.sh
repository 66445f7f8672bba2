#: use
makes the runs one after the other, then what follows from them.
#: again
again() { echo "call the script again to continue" >&2; }
#: loop
# Ctrl-C ends the run and the script: without the trap it would continue with the next run.
for ((index = 0; index < {{count}}; index++)); do (
trap 'exit 130' INT TERM
{{body}}
); done
