# Sourced by what checks a whole clone: runs steps, keeps the result and the time of each, and goes on after a failure.
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"

export CI=true
steps=()
failed=()
left_out=()

# keep_step NAME STARTED STATUS [RESULT]: what came of a step; without a result, a status that is not 0 is a failure.
keep_step() {
  local name=$1 started=$2 status=$3 result=${4:-ok}
  if (($# < 4 && status != 0)); then
    result="failed with $status"
    failed+=("$name")
  fi
  steps+=("$(printf '%-28s %4d s  %s' "$name" $((SECONDS - started)) "$result")")
}

# step NAME COMMAND…: runs the command with a heading, and keeps its result and its time.
step() {
  local name=$1 started=$SECONDS status=0
  shift
  say "$name"
  "$@" </dev/null || status=$?
  keep_step "$name" "$started" "$status"
}

# step_until SECONDS NAME PROGRAM…: as `step`, but what is not done so many seconds after the start is ended there,
# and left out: that has found nothing, which is neither good nor bad.
step_until() {
  local until=$1 name=$2 started=$SECONDS status=124
  shift 2
  if ((SECONDS < until)); then
    status=0
    say "$name"
    timeout --kill-after=30 "$((until - SECONDS))" "$@" </dev/null || status=$?
  fi
  # What timeout says of a program that it has ended. One that was killed before had another reason.
  if ((SECONDS >= until && (status == 124 || status == 137))); then
    left_out+=("$name")
    keep_step "$name" "$started" "$status" "left out"
  else
    keep_step "$name" "$started" "$status"
  fi
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
