# Sourced by the scripts that check a whole clone: runs steps, records the result and the time of each, and continues
# after a failure.
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"

export CI=true
steps=()
failed=()
left_out=()
# What the failed steps printed about it, since only the end of the output may be kept.
findings=()

# keep_step NAME STARTED STATUS [RESULT]: records a step; without a result, a status other than 0 is a failure.
keep_step() {
  local name=$1 started=$2 status=$3 result=${4:-ok}
  if (($# < 4 && status != 0)); then
    result="failed with $status"
    failed+=("$name")
  fi
  steps+=("$(printf '%-28s %4d s  %s' "$name" $((SECONDS - started)) "$result")")
}

# step NAME COMMAND…: runs the command with a heading, and records its result and its time.
step() {
  local name=$1 started=$SECONDS status=0 log
  shift
  log=$(mktemp)
  say "$name"
  # Not a pipe, which would be waited for as long as a process that the step has left behind holds it.
  "$@" </dev/null > >(tee "$log") 2>&1 || status=$?
  if ((status != 0)); then
    sleep 1 # `tee` may not have written the last of it
    keep_findings "$name" "$log"
  fi
  keep_step "$name" "$started" "$status"
  rm -f "$log"
}

# The lines of a step that report a finding: ctest's word for a failed test, a sanitizer's report, a warning of clang or
# clang-tidy that is an error, and the message of scripts/fuzz.
readonly finding='\*\*\*(Failed|Exception|Timeout|Not Run)|(ERROR|WARNING): [A-Za-z]*Sanitizer|runtime error:|: error: |: FAILED:|found something: '

# keep_findings NAME LOG: keeps the lines of a step's output that report a finding, or else its last ones, to be printed
# at the end.
keep_findings() {
  local found
  found=$(grep -Em10 "$finding" "$2" | cut -c1-300) || true
  [[ -n $found ]] || found=$(tail -n 5 "$2" | cut -c1-300)
  findings+=("$1:"$'\n'"$found")
}

# step_until SECONDS NAME PROGRAM…: as `step`, but what is not done so many seconds after the start is ended there. It is
# left out, which is neither good nor bad, unless it has found something until then: that is a failure, done or not.
step_until() {
  local until=$1 name=$2 started=$SECONDS status=0 log group found
  shift 2
  if ((SECONDS >= until)); then
    left_out+=("$name")
    keep_step "$name" "$started" 0 "left out"
    return
  fi
  say "$name"
  log=$(mktemp)
  # A process group of its own, so that all of it can be ended.
  set -m
  { "$@" </dev/null 2>&1 | tee "$log"; } &
  group=$!
  set +m
  while kill -0 "$group" 2>/dev/null && ((SECONDS < until)); do
    sleep 0.2
  done
  if kill -0 "$group" 2>/dev/null; then
    # Searched before the step is ended: output of a test that is ended with it is not a finding.
    found=$(grep -Em5 "$finding" "$log") || true
    end_group "$group"
    if [[ -z $found ]]; then
      left_out+=("$name")
      keep_step "$name" "$started" 0 "left out"
    else
      say "$name: ended for time, after it had found"
      printf '    %s\n' "$found" >&2
      failed+=("$name")
      findings+=("$name:"$'\n'"$found")
      keep_step "$name" "$started" 1 "failed before its time limit"
    fi
  else
    wait "$group" || status=$?
    ((status == 0)) || keep_findings "$name" "$log"
    keep_step "$name" "$started" "$status"
  fi
  rm -f "$log"
}

# end_group GROUP: terminates its processes, and kills the remaining ones after 30 s.
end_group() {
  local tries=150
  kill -TERM -- "-$1" 2>/dev/null || true
  while kill -0 -- "-$1" 2>/dev/null && ((tries-- > 0)); do
    sleep 0.2
  done
  kill -KILL -- "-$1" 2>/dev/null || true
  wait "$1" 2>/dev/null || true
}

# last_step NAME PROGRAM…: as `step`, for one that ends with ctest's summary. Tells of all steps, and then prints the
# summary once more: before it stand the tests that passed at the second try, and what was left out. Of the tests that
# were skipped it has only the number, since only the end of the output may be kept.
last_step() {
  local log status=0 name=$1 started=$SECONDS
  shift
  say "$name"
  log=$(mktemp)
  { "$@" </dev/null 2>&1 | tee "$log"; } || status=$?
  ((status == 0)) || keep_findings "$name" "$log"
  keep_step "$name" "$started" "$status"
  tell_steps
  awk '/^[0-9]+% tests passed/ { summary = ""; skipped = 0; seen = 1 }
    /^The following tests did not run:$/ { next }
    /\(Skipped\)$/ { ++skipped; next }
    { summary = summary $0 "\n" }
    END {
      if (seen) printf "%s", summary
      if (skipped > 0) print skipped " tests were skipped, whose names are above"
    }' "$log"
  rm -f "$log"
}

# tell_steps: prints which steps have run so far, and which have not.
tell_steps() {
  local list
  say "Until here, after $SECONDS s"
  printf '    %s\n' "${steps[@]}" >&2
  for list in "$root"/build/*/Testing/passed-at-second-try; do
    [[ -e $list ]] || continue
    say "Passed only at the second try: $(wc -l <"$list")"
    cat "$list" >&2
  done
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
  for list in "${findings[@]}"; do
    say "Found in $list"
  done
  die "failed: $(printf '%s; ' "${failed[@]}")"
}
