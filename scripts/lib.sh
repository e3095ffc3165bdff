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

# As root: itself or by sudo.
as_root() {
  if [[ $EUID -eq 0 ]]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "this needs root, and there is no sudo. As root, run: $*"
  fi
}
