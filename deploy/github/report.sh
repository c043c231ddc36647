#!/bin/bash
# Writes the incidents to the job's summary, which may have 1 MiB: the latest ones whole, of all others the number.
set -euo pipefail

state=$RUNNER_TEMP/hangwatch
shopt -s nullglob
incidents=("$state"/incidents/*/incident.json)
echo "incidents=${#incidents[@]}" >>"$GITHUB_OUTPUT"
shown=0
# Ids begin with the time of the onset, so the last one in order is the latest.
for ((i = ${#incidents[@]} - 1; i >= 0 && shown < 5; i--, shown++)); do
  id=$(basename "$(dirname "${incidents[i]}")")
  "$PYTHON" -m hangwatch report "$id" --state-dir "$state" --format github >>"$GITHUB_STEP_SUMMARY"
done
if [ "${#incidents[@]}" -gt "$shown" ]; then
  echo "and $((${#incidents[@]} - shown)) more incidents in the artifact" >>"$GITHUB_STEP_SUMMARY"
fi
