"""Keep new pods off nodes: for ``--on-hang "restart,exec:python3 cordon.py"`` in a pod whose account may patch nodes.

The nodes are those that had the culprits of two of the job's last three hangs (docs/actions.md). The agents have to call them
as the cluster does: HANGWATCH_NODE from spec.nodeName. It does what ``kubectl cordon`` does (kubectl 1.33, pkg/drain/cordon.go),
and exits with 1 if a node could not be cordoned.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import urllib.parse
import urllib.request
from pathlib import Path

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SERVER = "https://kubernetes.default.svc"
_LIMIT_S = 10.0


def cordon(node: str) -> None:
    """Mark a node as unschedulable. Raises ``OSError``."""
    request = urllib.request.Request(  # noqa: S310  # the API server
        f"{SERVER}/api/v1/nodes/{urllib.parse.quote(node, safe='')}",
        data=json.dumps({"spec": {"unschedulable": True}}).encode(),
        headers={
            "Authorization": f"Bearer {(ACCOUNT / 'token').read_text().strip()}",
            "Content-Type": "application/strategic-merge-patch+json",
        },
        method="PATCH",
    )
    trusted = ssl.create_default_context(cafile=ACCOUNT / "ca.crt") if SERVER.startswith("https") else None
    with urllib.request.urlopen(request, timeout=_LIMIT_S, context=trusted):  # noqa: S310  # the same
        pass


def main() -> int:
    """Cordon every node of HANGWATCH_EXCLUDE_NODES."""
    failed = 0
    for node in filter(None, os.environ.get("HANGWATCH_EXCLUDE_NODES", "").split(",")):
        try:
            cordon(node)
        except OSError as error:
            failed = 1
            sys.stderr.write(f"cannot cordon {node}: {error}\n")
    return failed


if __name__ == "__main__":
    sys.exit(main())
