"""Tell Kubernetes of a hang: for ``--on-hang "restart,exec:python3 cluster.py event cordon"`` in a pod whose account may do so.

``event``: the verdict as an Event on a pod of the job, for ``kubectl describe pod`` and whoever watches Events. The pod is that
of the bundle (``job.pod`` in incident.json): the ranks' POD_NAME and POD_NAMESPACE.

``trainjob``: the same Event on the TrainJob of that pod, for ``kubectl describe trainjob``. A label of the pod names its JobSet,
whose name is that of the TrainJob (Kubeflow Trainer 2.3, pkg/runtime/framework/plugins/jobset/jobset.go).

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
    job, pod = _find_pod()
    _say(job, "v1", "Pod", pod)


def trainjob() -> None:
    """Put the verdict on the TrainJob of that pod. Raises ``OSError``, also if it has none."""
    job, pod = _find_pod()
    name = pod.get("labels", {}).get("jobset.sigs.k8s.io/jobset-name")
    if not name:
        raise OSError(f"the pod {pod['name']} belongs to no JobSet")
    version = "trainer.kubeflow.org/v1alpha1"
    found = call(
        "GET", f"/apis/{version}/namespaces/{quote(job['namespace'], safe='')}/trainjobs/{quote(name, safe='')}"
    )
    _say(job, version, "TrainJob", found["metadata"])


def _find_pod() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the job of the bundle, and the metadata of its pod. Raises ``OSError``."""
    job = json.loads((Path(os.environ["HANGWATCH_INCIDENT"]) / "incident.json").read_text())["job"]
    namespace, pod = job.get("namespace"), job.get("pod")
    if not (namespace and pod):
        raise OSError("the ranks have no POD_NAME and POD_NAMESPACE")
    return job, call("GET", f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}")["metadata"]


def _say(job: dict[str, Any], version: str, kind: str, about: dict[str, Any]) -> None:
    """Create an Event on the object with the metadata ``about``. Raises ``OSError``."""
    namespace, now = job["namespace"], datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    said = f"Job {job['id']}: {os.environ['HANGWATCH_SUMMARY']} (incident {os.environ['HANGWATCH_INCIDENT_ID']})"
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "hangwatch-", "namespace": namespace},
        # Without the uid, `kubectl describe` does not show it.
        "involvedObject": {
            "apiVersion": version, "kind": kind, "name": about["name"], "namespace": namespace, "uid": about["uid"],
        },
        "type": "Warning",
        "reason": "".join(word.title() for word in os.environ["HANGWATCH_KIND"].split("_")),
        "message": said if len(said) <= _MESSAGE_LIMIT else f"{said[: _MESSAGE_LIMIT - 3]}...",
        "source": {"component": "hangwatch", "host": os.environ.get("HANGWATCH_NODE", "")},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }  # fmt: skip
    call("POST", f"/api/v1/namespaces/{quote(namespace, safe='')}/events", body)


def main() -> int:
    """Do what the arguments name, all of it."""
    status = 0
    for name in sys.argv[1:]:
        try:
            {"cordon": cordon, "event": event, "trainjob": trainjob}[name]()
        except OSError as error:
            status = 1
            sys.stderr.write(f"cannot {name}: {error}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
