#!/bin/bash
# Runs the command under hangwatch and ends with its exit status, or 75 if it was ended because it hung.
set -euo pipefail

options=(--state-dir "$RUNNER_TEMP/hangwatch" --on-hang "$ON_HANG")
if [ -n "$STALL_AFTER" ]; then
  options+=(--stall-after "$STALL_AFTER")
fi
# As GitHub runs a step with `shell: bash`.
exec "$PYTHON" -m hangwatch run "${options[@]}" -- bash --noprofile --norc -eo pipefail -c "$COMMAND"
