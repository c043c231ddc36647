"""Which job a pod belongs to, by the labels that Kubernetes shows to it. May import the standard library and ``sources.proc``.

A volume of the downward API with ``metadata.labels`` is one line a label, ``key="value"``, the value quoted as Go does
(Kubernetes, pkg/fieldpath FormatMap). It is looked for where Kubernetes' own documentation mounts it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from hangwatch.sources.discovery.rank_environment import POD_JOB, POD_NAMESPACE
from hangwatch.sources.proc.files import read_whole

_PLACE = "etc/podinfo/labels"
_NAMESPACE = "var/run/secrets/kubernetes.io/serviceaccount/namespace"
_LIMIT_BYTES = 1 << 16
#: The labels that name a job, the surest first: Kubeflow's operators, JobSet, LeaderWorkerSet, Volcano, Ray, a plain Job.
_LABELS = (
    "training.kubeflow.org/job-name",
    "jobset.sigs.k8s.io/jobset-name",
    "leaderworkerset.sigs.k8s.io/name",
    "volcano.sh/job-name",
    "ray.io/cluster",
    "batch.kubernetes.io/job-name",
    "job-name",
)
#: The replicas of a LeaderWorkerSet are jobs of their own (lws 0.10.0, api/leaderworkerset/v1).
_PARTS = {"leaderworkerset.sigs.k8s.io/name": "leaderworkerset.sigs.k8s.io/group-index"}


def parse_labels(text: str) -> dict[str, str]:
    """Return the labels of a pod; lines of another form are left out."""
    found = {}
    for line in text.splitlines():
        key, separator, value = line.partition("=")
        try:
            said = json.loads(value) if separator else None
        except ValueError:
            continue
        if isinstance(said, str):
            found[key.strip()] = said
    return found


def name_job(labels: Mapping[str, str], namespace: str) -> str | None:
    """Return a job's name in its cluster, ``NAMESPACE/NAME``; None if no label names one."""
    label = next((label for label in _LABELS if labels.get(label)), None)
    if label is None:
        return None
    name = "-".join(filter(None, (labels[label], labels.get(_PARTS.get(label, "")))))
    return f"{namespace}/{name}" if namespace else name


def pod_variables(pid: int, namespace: str = "") -> dict[str, str]:
    """Return what a process's pod says of its job and namespace, in the form of environment variables.

    ``namespace``: what the process's own environment says, for a pod without the token of an account.
    """
    labels, said = (read_whole(f"/proc/{pid}/root/{place}", _LIMIT_BYTES) or b"" for place in (_PLACE, _NAMESPACE))
    namespace = said.decode(errors="replace").strip() or namespace
    name = name_job(parse_labels(labels.decode(errors="replace")), namespace)
    return ({POD_NAMESPACE: namespace} if namespace else {}) | ({POD_JOB: name} if name else {})
