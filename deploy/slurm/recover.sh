#!/bin/bash
# For `--on-hang exec:"bash recover.sh train.sbatch"` inside a Slurm job: the job is ended and submitted again, without nodes that
# had the culprits of two of its last three hangs. Those get no further jobs, for which the account needs the right to drain.
# The agent's names of nodes have to be Slurm's (HANGWATCH_NODE), and the next job has to have this one's name and its state
# directory (HANGWATCH_JOB, HANGWATCH_STATE_DIR), or its history begins anew.
set -uo pipefail

# What is this node's, and was the command's, must not come along.
unset HANGWATCH_NODE
exclude=()
if [ -n "$HANGWATCH_EXCLUDE_NODES" ]; then
  scontrol update nodename="$HANGWATCH_EXCLUDE_NODES" state=drain reason="hangwatch $HANGWATCH_INCIDENT_ID"
  exclude=("--exclude=$HANGWATCH_EXCLUDE_NODES")
fi
sbatch "${exclude[@]}" --dependency="afterany:$SLURM_JOB_ID" "$@" && scancel "$SLURM_JOB_ID"
