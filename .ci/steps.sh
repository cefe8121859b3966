# Sourced by what checks a whole clone: runs steps, keeps the result and the time of each, and goes on after a failure.
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"

export CI=true
steps=()
failed=()

# step NAME COMMAND…: runs the command with a heading, and keeps its result and its time.
step() {
  local name=$1 started=$SECONDS status=0
  shift
  say "$name"
  "$@" </dev/null || status=$?
  local result=ok
  if ((status != 0)); then
    result="failed with $status"
    failed+=("$name")
  fi
  steps+=("$(printf '%-28s %4d s  %s' "$name" $((SECONDS - started)) "$result")")
}

# tell_steps: what has been run until here.
tell_steps() {
  say "Until here"
  printf '    %s\n' "${steps[@]}" >&2
}

# failed_tests: of each build, those that failed in its last run.
failed_tests() {
  local list
  for list in "$root"/build/*/Testing/Temporary/LastTestsFailed.log; do
    [[ -s $list ]] || continue
    say "Failed in $(basename "${list%/Testing/*}"):"
    sed 's/^[0-9]*:/    /' "$list" >&2
  done
}

# end_steps: ends the script with 1 if a step has failed.
end_steps() {
  ((${#failed[@]} == 0)) || failed_tests
  ((${#failed[@]} == 0)) || die "failed: $(printf '%s; ' "${failed[@]}")"
}
