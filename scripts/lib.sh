# shellcheck shell=bash disable=SC2034
# What the scripts share; sourced, not run. Sets ROOT, the folder of the repository.
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

say() { printf '==> %s\n' "$*"; }

die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# Prints the comment at the top of a script, which is its help.
show_help() { sed -n '2,/^[^#]/{s/^# \{0,1\}//p;}' "$1"; }

# Runs a command as root, with sudo if needed.
as_root() {
  if [[ $EUID -eq 0 ]]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "this needs root, and there is no sudo. As root, run: $*"
  fi
}

# Prints 'N passed, N failed'. The numbers come from ctest's JUnit file $1; $3 and $4 are added to them. $2 is ctest's exit
# code. Fails if anything failed.
count_results() {
  local passed="${3:-0}" failed="${4:-0}" tests broken skipped
  if [[ -f "$1" ]]; then
    tests="$(results_of "$1" tests)" broken="$(results_of "$1" failures)"
    skipped=$(($(results_of "$1" disabled) + $(results_of "$1" skipped)))
    passed=$((passed + tests - broken - skipped))
    failed=$((failed + broken))
  fi
  if [[ "$2" -ne 0 && $failed -eq 0 ]]; then
    failed=1 # ctest itself failed
  fi
  echo "$passed passed, $failed failed"
  [[ $failed -eq 0 ]]
}

results_of() { sed -n "s/^\t* *$2=\"\([0-9]*\)\".*/\1/p" "$1" | head -1; }
