# Sourced by what checks a whole clone: runs steps, keeps the result and the time of each, and goes on after a failure.
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"

export CI=true
steps=()
failed=()
left_out=()

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

# step_until SECONDS NAME PROGRAM…: as `step`, but what is not done so many seconds after the start is ended there,
# and left out: that has found nothing, which is neither good nor bad.
step_until() {
  local until=$1 name=$2 started=$SECONDS status=0
  shift 2
  if ((SECONDS >= until)); then
    left_out+=("$name")
    steps+=("$(printf '%-28s %4d s  left out' "$name" 0)")
    return
  fi
  say "$name"
  timeout --kill-after=30 "$((until - SECONDS))" "$@" </dev/null || status=$?
  local result=ok
  if ((status == 124 || status == 137)); then
    result="not done in time"
    left_out+=("$name")
  elif ((status != 0)); then
    result="failed with $status"
    failed+=("$name")
  fi
  steps+=("$(printf '%-28s %4d s  %s' "$name" $((SECONDS - started)) "$result")")
}

# tell_steps: what has been run until here, and what has not.
tell_steps() {
  say "Until here, after $SECONDS s"
  printf '    %s\n' "${steps[@]}" >&2
  ((${#left_out[@]} == 0)) || say "LEFT OUT, since this machine is too slow for them: $(printf '%s; ' "${left_out[@]}")"
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
