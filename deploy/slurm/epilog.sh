#!/bin/bash
# Epilog of slurm.conf (run as root on each node after a job): removes what the job's user has left in memory, once none of
# that user's processes runs on the node. The agent's bundles are kept.
#   Epilog=/etc/slurm/hangwatch-epilog.sh
uid=${SLURM_JOB_UID:-}
case $uid in '' | *[!0-9]*) exit 0 ;; esac
if ! pgrep -U "$uid" >/dev/null; then
  folder=${HANGWATCH_SHM:-/dev/shm}/hangwatch-$uid
  [ -d "$folder" ] && [ ! -L "$folder" ] && [ "$(stat -c %u "$folder")" = "$uid" ] && rm -rf -- "$folder"
fi
exit 0
