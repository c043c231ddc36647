#!/bin/bash
# For `--on-hang exec:"bash recover.sh train.sbatch"` inside a Slurm job. It submits the job again and ends this one. The new job
# leaves out the nodes that had the culprits of two of the last three hangs. The script drains these nodes, so your account needs
# the permission to do so. The agent must use Slurm's names of the nodes (HANGWATCH_NODE). The new job must have the same name and
# state directory (HANGWATCH_JOB, HANGWATCH_STATE_DIR): otherwise its history begins again.
set -uo pipefail

# sbatch passes the environment on, and this name is of one node.
unset HANGWATCH_NODE
exclude=()
if [ -n "$HANGWATCH_EXCLUDE_NODES" ]; then
  scontrol update nodename="$HANGWATCH_EXCLUDE_NODES" state=drain reason="hangwatch $HANGWATCH_INCIDENT_ID"
  exclude=("--exclude=$HANGWATCH_EXCLUDE_NODES")
fi
sbatch "${exclude[@]}" --dependency="afterany:$SLURM_JOB_ID" "$@" && scancel "$SLURM_JOB_ID"
