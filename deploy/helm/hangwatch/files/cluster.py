"""Tell Kubernetes of a hang: for ``--on-hang "restart,exec:python3 cluster.py event cordon"`` in a pod whose account may do so.

``event``: the verdict as an Event on a pod of the job, for ``kubectl describe pod`` and whoever watches Events. The pod is that
of the bundle (``job.pod`` in incident.json): the ranks' POD_NAME and POD_NAMESPACE.

``cordon``: keep new pods off the nodes that had the culprits of two of the job's last three hangs (docs/actions.md). The agents
have to call them as the cluster does: HANGWATCH_NODE from spec.nodeName. It is what ``kubectl cordon`` does (kubectl 1.33,
pkg/drain/cordon.go).

Exits with 1 if one of them failed.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import urllib.request
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SERVER = "https://kubernetes.default.svc"
_LIMIT_S = 10.0
#: As client-go's recorder cuts it (tools/record/event.go, 1.33).
_MESSAGE_LIMIT = 1024


def call(method: str, path: str, body: object = None, content: str = "application/json") -> Any:
    """Return the API server's answer to a request. Raises ``OSError``."""
    request = urllib.request.Request(  # noqa: S310  # the API server
        f"{SERVER}{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {(ACCOUNT / 'token').read_text().strip()}", "Content-Type": content},
        method=method,
    )
    trusted = ssl.create_default_context(cafile=ACCOUNT / "ca.crt") if SERVER.startswith("https") else None
    with urllib.request.urlopen(request, timeout=_LIMIT_S, context=trusted) as answer:  # noqa: S310  # the same
        return json.load(answer)


def cordon() -> None:
    """Mark every node of HANGWATCH_EXCLUDE_NODES as unschedulable. Raises ``OSError`` after the last, if one failed."""
    failed = []
    for node in filter(None, os.environ.get("HANGWATCH_EXCLUDE_NODES", "").split(",")):
        try:
            change = {"spec": {"unschedulable": True}}
            call("PATCH", f"/api/v1/nodes/{quote(node, safe='')}", change, "application/strategic-merge-patch+json")
        except OSError as error:
            failed.append(f"{node}: {error}")
    if failed:
        raise OSError("; ".join(failed))


def event() -> None:
    """Put the verdict on a pod of the job. Raises ``OSError``, also if no pod is known."""
    job = json.loads((Path(os.environ["HANGWATCH_INCIDENT"]) / "incident.json").read_text())["job"]
    namespace, pod = job.get("namespace"), job.get("pod")
    if not (namespace and pod):
        raise OSError("the ranks have no POD_NAME and POD_NAMESPACE")
    found = call("GET", f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}")["metadata"]
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    said = f"Job {job['id']}: {os.environ['HANGWATCH_SUMMARY']} (incident {os.environ['HANGWATCH_INCIDENT_ID']})"
    sender = os.environ.get("HANGWATCH_NODE", "")
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "hangwatch-", "namespace": namespace},
        # Without the uid, `kubectl describe pod` does not show it.
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": pod, "namespace": namespace, "uid": found["uid"]},
        "type": "Warning",
        "reason": "".join(word.title() for word in os.environ["HANGWATCH_KIND"].split("_")),
        "message": said if len(said) <= _MESSAGE_LIMIT else f"{said[: _MESSAGE_LIMIT - 3]}...",
        "source": {"component": "hangwatch", "host": sender},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    call("POST", f"/api/v1/namespaces/{quote(namespace, safe='')}/events", body)


def main() -> int:
    """Do what the arguments name, all of it."""
    status = 0
    for name in sys.argv[1:]:
        try:
            {"cordon": cordon, "event": event}[name]()
        except OSError as error:
            status = 1
            sys.stderr.write(f"cannot {name}: {error}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
