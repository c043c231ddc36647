#!/bin/bash
# Installs hangwatch, and lets py-spy read the stacks of the ranks: the runners of GitHub allow that to a process's parents alone.
set -euo pipefail

if [ -n "$PACKAGE" ]; then
  "$PYTHON" -m pip install --quiet --disable-pip-version-check "$PACKAGE"
fi
scope=${HANGWATCH_PTRACE_SCOPE:-/proc/sys/kernel/yama/ptrace_scope}
if [ "$(id -u)" -ne 0 ] && [ -r "$scope" ] && [ "$(cat "$scope")" != 0 ]; then
  sudo -n sysctl --quiet kernel.yama.ptrace_scope=0 ||
    echo "::warning title=hangwatch::stacks cannot be read here: it takes sudo to set kernel.yama.ptrace_scope=0"
fi
