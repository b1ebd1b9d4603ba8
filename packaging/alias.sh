#!/bin/sh
# The same as `codex-mcp @VERB@`.
exec "$(dirname -- "$0")/codex-mcp" @VERB@ "$@"
