#!/bin/sh
# Copies the probe and an empty run directory into FOLDER, for a container without hangwatch. Start that container with
# PYTHONPATH=FOLDER/probe/site and HANGWATCH_RUN_DIR=FOLDER/run. Usage: copy-probe.sh FOLDER
set -eu
folder=${1:?usage: copy-probe.sh FOLDER}
package=$(python3 -c 'import os, hangwatch; print(os.path.dirname(hangwatch.__file__))')
rm -rf "$folder/probe"
cp -R "$package/probe" "$folder/probe"
mkdir -p "$folder/run/ranks"
chmod 0755 "$folder/probe"
# Ranks may run as any user; the sticky bit protects their files from each other.
chmod 1777 "$folder/run/ranks"
