#!/bin/sh
# Becomes the program for this machine, which lies beside this script.
case "$(uname -s)" in
Linux) os=linux ;;
Darwin) os=darwin ;;
*) os=$(uname -s) ;;
esac
case "$(uname -m)" in
x86_64 | amd64) cpu=x64 ;;
aarch64 | arm64) cpu=arm64 ;;
*) cpu=$(uname -m) ;;
esac
program=$(dirname "$0")/$os-$cpu/codex-mcp
if [ ! -x "$program" ]; then
    echo "error: this bundle has no program for $os-$cpu" >&2
    exit 1
fi
exec "$program" "$@"
