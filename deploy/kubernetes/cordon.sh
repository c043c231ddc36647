#!/bin/sh
# For `--on-hang "restart,exec:sh cordon.sh"`: nodes that had the culprits of two of the job's last three hangs get no further pods.
# Needs an account that may change nodes. The agent's names of nodes have to be the cluster's: in a pod, HANGWATCH_NODE from
# spec.nodeName.
for node in $(echo "$HANGWATCH_EXCLUDE_NODES" | tr , ' '); do
  kubectl cordon "$node"
done
