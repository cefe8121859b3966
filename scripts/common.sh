# Shared by the scripts of this folder, which source it. Needs bash.

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
script=$(basename "$0")

if [[ -t 2 && -z ${NO_COLOR:-} ]]; then
  bold=$'\e[1m' red=$'\e[31m' plain=$'\e[0m'
else
  bold='' red='' plain=''
fi

# say WORDS…: a heading, on stderr so that stdout carries results only.
say() { printf '%s\n' "${bold}==> $*${plain}" >&2; }

# die WORDS…: ends the script with a sentence that helps.
die() {
  printf '%s\n' "${red}$script: $*${plain}" >&2
  exit 1
}

# failed_tests DIRECTORY: prints the failed tests of ctest's last run there, a line each.
failed_tests() { sed 's/^[0-9]*:/    /' "$1/Testing/Temporary/LastTestsFailed.log"; }

# usage: prints the comment at the top of the calling script.
usage() { sed -n '2,/^[^#]/{/^#/!q;s/^# \{0,1\}//;p}' "$0"; }

# How many compilers to run at once: one per core, and 1 GiB of memory for each.
parallel_jobs() {
  local cores memory_kib limit
  cores=$(nproc)
  memory_kib=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
  limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null || echo max)
  if [[ $limit != max && $((limit / 1024)) -lt $memory_kib ]]; then
    memory_kib=$((limit / 1024))
  fi
  local by_memory=$((memory_kib / 1048576))
  echo $((by_memory < 1 ? 1 : by_memory < cores ? by_memory : cores))
}

# configure_preset PRESET [CMAKE ARGUMENTS…]: configures; prints nothing on success.
configure_preset() {
  local preset=$1 output
  shift
  if ! output=$(cd "$root" && cmake --preset "$preset" "$@" 2>&1); then
    printf '%s\n' "$output" >&2
    die "configuring the preset '$preset' failed; the lines above say why"
  fi
}

# build_targets DIRECTORY TARGETS…: builds; prints nothing when there is nothing to do.
build_targets() {
  local directory=$1
  shift
  cmake --build "$directory" --parallel "$(parallel_jobs)" --target "$@" >&2
}
