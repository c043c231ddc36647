#!/bin/bash
# TaskProlog of slurm.conf, for sites that run hangwatch.service on each node: every job step gets the probe, without changes
# to batch scripts. What a task prolog prints as "export NAME=value" becomes the task's environment.
#   TaskProlog=/etc/slurm/hangwatch-prolog.sh
# It never prevents a job from starting: if hangwatch does not work, it prints nothing.
hangwatch=${HANGWATCH:-/opt/hangwatch/bin/hangwatch}
[ -z "${HANGWATCH_OFF:-}" ] && [ -x "$hangwatch" ] || exit 0
variables=$(timeout 10 "$hangwatch" env --json 2>/dev/null) || exit 0
printf '%s' "$variables" | timeout 10 python3 -c '
import json, sys
for name, value in json.load(sys.stdin).items():
    print(f"export {name}={value}")
' 2>/dev/null
exit 0
