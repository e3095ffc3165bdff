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

# Runs the tests of a build folder, with the arguments of ctest that follow. Their counts are the last line:
# 'N passed, N failed', with the caller's counts, passed and failed, added.
run_tests() {
  local build="$1" status=0
  shift
  rm -rf "$build/test-results.xml" "$build/tests/results"
  # No check for leaks: LibTorch and its BLAS keep memory until the end, on purpose.
  ASAN_OPTIONS="detect_leaks=0:${ASAN_OPTIONS:-}" ctest --test-dir "$build" --output-on-failure -j "${TEST_JOBS:-2}" \
    --output-junit "$build/test-results.xml" "$@" || status=$?
  "$ROOT/scripts/count_tests" "$build" "$status" "${passed:-0}" "${failed:-0}"
}
