#!/bin/sh
# Installs codex-mcp @VERSION@.
#
#   sh install.sh [--to DIRECTORY] [--from URL]
#
# --to DIRECTORY  where the program goes (default: ~/.local/bin)
# --from URL      where the archive and SHA256SUMS are downloaded, such as a mirror
#
# The archive is verified by its checksum before anything of it is run or installed. To remove the
# program, delete it.
set -eu

version='@VERSION@'
from='@DOWNLOAD@'

# Everything is in functions, so that a script that was downloaded in part does nothing.
main() {
  to=
  while [ $# -gt 0 ]; do
    case $1 in
      --to | --from)
        [ $# -ge 2 ] || fail "$1 needs a value"
        if [ "$1" = --to ]; then to=$2; else from=${2%/}; fi
        shift 2
        ;;
      -h | --help)
        usage
        return
        ;;
      *) fail "unknown argument: $1 (--help lists them)" ;;
    esac
  done
  if [ -z "$to" ]; then
    [ -n "${HOME:-}" ] || fail 'HOME is not set: choose a directory with --to'
    to=$HOME/.local/bin
  fi
  triple=$(platform)
  require_safe "$from"

  work=$(mktemp -d) || fail 'cannot create a temporary directory'
  trap 'rm -rf "$work"' EXIT
  trap 'exit 1' HUP INT TERM

  name=codex-mcp-$version-$triple
  say "Downloading $name.tar.gz"
  download "$from/SHA256SUMS" "$work/SHA256SUMS"
  download "$from/$name.tar.gz" "$work/$name.tar.gz"
  verify "$name.tar.gz"
  tar -xzf "$work/$name.tar.gz" -C "$work" "$name/codex-mcp" || fail 'cannot unpack the archive'
  "$work/$name/codex-mcp" --version >/dev/null ||
    fail "the program does not run on this machine, or not in $work: if no program may run there (noexec), set TMPDIR to another directory"
  put "$work/$name/codex-mcp"
  say "Installed $("$to/codex-mcp" --version) as $to/codex-mcp"
  advise
}

usage() {
  cat <<'END'
Installs codex-mcp @VERSION@.

  sh install.sh [--to DIRECTORY] [--from URL]

  --to DIRECTORY  where the program goes (default: ~/.local/bin)
  --from URL      where the archive and SHA256SUMS are downloaded
END
}

say() {
  printf '%s\n' "$*"
}

fail() {
  printf 'install.sh: %s\n' "$*" >&2
  exit 1
}

# The target triple of the archive for this machine.
platform() {
  system=$(uname -s)
  machine=$(uname -m)
  case $machine in
    x86_64 | amd64) arch=x86_64 ;;
    aarch64 | arm64) arch=aarch64 ;;
    *) fail "there is no build for the processor $machine: build it with cargo" ;;
  esac
  case $system in
    Linux) say "$arch-unknown-linux-musl" ;;
    Darwin)
      # A shell that is translated from x86_64 claims to run on it.
      if [ "$(sysctl -n hw.optional.arm64 2>/dev/null || :)" = 1 ]; then arch=aarch64; fi
      say "$arch-apple-darwin"
      ;;
    MINGW* | MSYS* | CYGWIN* | Windows*)
      fail 'Windows is not supported: run this inside WSL (https://learn.microsoft.com/windows/wsl)'
      ;;
    *) fail "there is no build for $system" ;;
  esac
}

# The checksums come from the same place as the archive: without TLS they would prove nothing.
require_safe() {
  case $1 in
    # What stands before it is not the host.
    *@*) fail "refusing to download from $1: the address must not have a user" ;;
    https://* | http://127.0.0.1:* | http://localhost:*) ;;
    *) fail "refusing to download from $1: the address must begin with https://" ;;
  esac
}

# download URL FILE: redirects do not lead from https to an address without TLS.
download() {
  if has curl; then
    case $1 in
      https://*) curl --proto '=https' --tlsv1.2 -fsSL -o "$2" "$1" ;;
      *) curl -fsSL -o "$2" "$1" ;;
    esac || fail "cannot download $1"
  elif has wget; then
    case $1 in
      https://*) wget_tls "$1" "$2" ;;
      *) wget -q -O "$2" "$1" ;;
    esac || fail "cannot download $1"
  else
    fail 'curl or wget is needed'
  fi
}

# wget_tls URL FILE: wget has no option that forbids such redirects. So GNU Wget is told to ask a proxy
# for all but https, and no proxy listens there. BusyBox wget has no such option.
wget_tls() {
  case $(LC_ALL=C wget --version 2>/dev/null) in
    'GNU Wget '*) ;;
    *) fail 'curl or GNU Wget 1 is needed: this wget would follow a redirect to an address without TLS' ;;
  esac
  nothing=http://127.0.0.1:9
  wget -q -e use_proxy=on -e http_proxy=$nothing -e ftp_proxy=$nothing -e no_proxy= -O "$2" "$1"
}

# verify NAME: compares the file with its line in SHA256SUMS.
verify() {
  expected=$(awk -v name="$1" '$2 == name { print $1 }' "$work/SHA256SUMS")
  [ -n "$expected" ] || fail "SHA256SUMS does not list $1"
  if has sha256sum; then
    found=$(sha256sum <"$work/$1")
  elif has shasum; then
    found=$(shasum -a 256 <"$work/$1")
  else
    fail 'sha256sum or shasum is needed to verify the download'
  fi
  [ "${found%% *}" = "$expected" ] ||
    fail "the checksum of $1 is wrong: nothing was installed. Try again, and report it if it stays so."
}

# put FILE: the program appears at once and complete, also where one runs already. From here on, $to is
# absolute and ends with no slash, as in a PATH.
put() {
  mkdir -p "$to" || fail "cannot create $to"
  absolute=$(CDPATH='' cd -- "$to" && pwd) || fail "cannot enter $to"
  to=$absolute
  new=$to/.codex-mcp.$$
  if ! { cp "$1" "$new" && chmod 755 "$new" && mv -f "$new" "$to/codex-mcp"; }; then
    rm -f "$new"
    fail "cannot write to $to"
  fi
}

advise() {
  case :${PATH:-}: in
    *":$to:"*)
      other=$(command -v codex-mcp || :)
      if [ "$other" != "$to/codex-mcp" ]; then
        say "Note: your shell finds another codex-mcp first: $other"
      fi
      ;;
    *)
      say "$to is not on your PATH. Add this line to your shell's start-up file:"
      say "  export PATH=\"$to:\$PATH\""
      ;;
  esac
  say 'Next: codex-mcp setup'
}

has() {
  command -v "$1" >/dev/null 2>&1
}

main "$@"
