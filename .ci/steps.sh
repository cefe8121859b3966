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

# end_steps: ends the script with 1 if a step has failed, and names the tests that failed in the last run of each build.
end_steps() {
  local list build
  ((${#failed[@]} > 0)) || return 0
  for list in "$root"/build/*/Testing/Temporary/LastTestsFailed.log; do
    [[ -s $list ]] || continue
    build=${list%/Testing/*}
    say "Failed in $(basename "$build"):"
    failed_tests "$build" >&2
  done
  die "failed: $(printf '%s; ' "${failed[@]}")"
}
