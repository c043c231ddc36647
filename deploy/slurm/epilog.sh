#!/bin/bash
# Epilog of slurm.conf (run as root on each node after a job): what the job's user has left in memory goes once none of that
# user's processes runs here any more. The agent's bundles stay.
#   Epilog=/etc/slurm/hangwatch-epilog.sh
uid=${SLURM_JOB_UID:-}
case $uid in '' | *[!0-9]*) exit 0 ;; esac
if ! pgrep -U "$uid" >/dev/null; then
  folder=${HANGWATCH_SHM:-/dev/shm}/hangwatch-$uid
  [ -d "$folder" ] && [ ! -L "$folder" ] && [ "$(stat -c %u "$folder")" = "$uid" ] && rm -rf -- "$folder"
fi
exit 0
