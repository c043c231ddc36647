"""The chart on a real API server: what it accepts, the pods that its controllers make, what the account may do. By hand.

``PYTHONPATH=tests python tests/deploy/on_api_server.py BINARIES``. BINARIES is what ``build_api_server.sh`` has built; ``etcd``
and ``openssl`` are on PATH. With ``cel-python`` installed, ``injection.py`` is run too. Nodes are objects only, but for two that
are hollow (kubemark): scheduler and kubelets are real, and containers run nothing. There are no custom resources: that server
ends when it reads one (its JSON library, reflect2 1.0.1, does not fit the maps of Go 1.18 and newer), so of the recipes only the
pods are tried. Ends with 1 if anything is not as the chart says.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from api_server import Cluster, check, failures
from chart import EVERYTHING, RECIPES, Object, load_script, pods, render
from injection import look_at_injection

from support import JobRunner, wait_for

POD, EVENTS, NODE = "/api/v1/namespaces/team/pods/worker-0", "/api/v1/namespaces/team/events", "/api/v1/nodes/gpu-1"
TRAINJOB = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs/train"
#: What each switch allows the account of the agents, and what none does.
BY_SWITCH = {"cordon": {("PATCH", NODE)}, "events": {("GET", POD), ("POST", EVENTS)}, "trainJobs": {("GET", TRAINJOB)}}
NEVER = {
    ("GET", "/api/v1/nodes"), ("GET", NODE), ("DELETE", NODE), ("PATCH", f"{NODE}/status"), ("GET", "/api/v1/pods"),
    ("PATCH", POD), ("DELETE", POD), ("POST", f"{POD}/eviction"), ("GET", f"{POD}/log"), ("POST", f"{POD}/exec"), ("GET", EVENTS),
    ("GET", "/api/v1/secrets"), ("GET", "/api/v1/namespaces/watch/secrets/keys"), ("POST", "/api/v1/namespaces/team/pods"),
    ("GET", "/apis/apps/v1/daemonsets"), ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"),
    ("PATCH", TRAINJOB), ("PATCH", f"{TRAINJOB}/status"),
}  # fmt: skip
GPU = {"nvidia.com/gpu.present": "true", "kubernetes.io/arch": "amd64"}
NODES: Mapping[str, Mapping[str, str]] = {"gpu-1": GPU, "gpu-2": GPU, "cpu-1": {}}
HOLLOW = ("hollow-1", "hollow-2")
ACCOUNT_FILES = "/var/run/secrets/kubernetes.io/serviceaccount"


def agents(cluster: Cluster) -> dict[str, Object]:
    """The pods of agents, by the node for which the controller has made them."""
    found = {}
    for pod in cluster.list("/api/v1/namespaces/watch/pods?labelSelector=hangwatch%3Dagent"):
        (term,) = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
            "nodeSelectorTerms"
        ]
        found[term["matchFields"][0]["values"][0]] = pod
    return found


def look_at_agents(cluster: Cluster, nodes: set[str], calls: bool) -> None:
    """The controller makes one pod for each node that is meant, with a token only if a switch asks for it."""
    try:
        wait_for(lambda: agents(cluster).keys() == nodes, 60.0, "the agents", poll_s=0.5)
    except AssertionError:
        print(*{one["message"] for one in cluster.list("/api/v1/namespaces/watch/events")}, sep="\n")
    found = agents(cluster)
    check(found.keys() == nodes, f"agents for {sorted(found)}")
    mounts = {
        mount["mountPath"]
        for pod in found.values()
        for one in pod["spec"]["containers"]
        for mount in one["volumeMounts"]
    }
    check((ACCOUNT_FILES in mounts) is calls, f"they have {'a' if calls else 'no'} token")


def look_at_rights(cluster: Cluster, switches: set[str]) -> None:
    """Each request with the account's own token: 403 for all that the switches do not give."""
    wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    made = cluster.call("POST", "/api/v1/namespaces/watch/serviceaccounts/hangwatch/token", wanted)[1]
    token = made["status"]["token"]
    (cluster.folder / "token").write_text(token)
    allowed = {request for switch in switches for request in BY_SWITCH[switch]}
    for method, path in sorted(NEVER.union(*BY_SWITCH.values())):
        content = "application/strategic-merge-patch+json" if method == "PATCH" else "application/json"
        body = None if method == "GET" else {}
        status, _ = cluster.call(method, f"{path}?dryRun=All", body, content, token)
        check((status != 403) is ((method, path) in allowed), f"{sorted(switches)}: {method} {path} {status}")


def run_script(cluster: Cluster) -> None:
    """``cluster.py`` as the server has it, with the account's token: a node is cordoned, a pod has the verdict."""
    texts = cluster.call("GET", "/api/v1/namespaces/watch/configmaps/hangwatch")[1]["data"]
    (cluster.folder / "cluster.py").write_text(texts["cluster.py"])
    script: Any = load_script(cluster.folder / "cluster.py")
    script.ACCOUNT, script.SERVER = cluster.folder, cluster.server
    job = {"id": "team/llama", "namespace": "team", "pod": "worker-0"}
    (cluster.folder / "incident.json").write_text(json.dumps({"job": job}))
    os.environ |= {"HANGWATCH_EXCLUDE_NODES": "gpu-1", "HANGWATCH_INCIDENT": str(cluster.folder), "HANGWATCH_INCIDENT_ID": "i-1",
        "HANGWATCH_KIND": "deadlock", "HANGWATCH_SUMMARY": "Rank 0 hangs.", "HANGWATCH_NODE": "gpu-1"}  # fmt: skip
    sys.argv[1:] = ["event", "cordon"]
    check(script.main() == 0, "cluster.py event cordon ends with 0")
    check(cluster.call("GET", NODE)[1]["spec"].get("unschedulable"), "the node is cordoned")
    # The server has no TrainJobs; it takes an Event on anything.
    script._say(job, "trainer.kubeflow.org/v1alpha1", "TrainJob", {"name": "train", "uid": "uid-of-train"})
    pod = cluster.call("GET", POD)[1]["metadata"]["uid"]
    for kind, name, uid in (("Pod", "worker-0", pod), ("TrainJob", "train", "uid-of-train")):
        # As `kubectl describe` asks.
        about = {"kind": kind, "name": name, "namespace": "team", "uid": uid}
        asked = "%2C".join(f"involvedObject.{key}%3D{value}" for key, value in about.items())
        said = [(one["type"], one["reason"], one["message"]) for one in cluster.list(f"{EVENTS}?fieldSelector={asked}")]
        check(
            said == [("Warning", "Deadlock", "Job team/llama: Rank 0 hangs. (incident i-1)")],
            f"events of {kind}: {said}",
        )


def remove(cluster: Cluster, objects: Sequence[Object]) -> None:
    """Delete what the chart has made, and the pods with it."""
    for document in objects:
        if (place := cluster.place(document, "watch")) is not None:
            cluster.call("DELETE", f"{place}/{document['metadata']['name']}", {"propagationPolicy": "Background"})

    def gone() -> bool:
        for pod in (found := agents(cluster)).values():
            cluster.call(
                "DELETE", f"/api/v1/namespaces/watch/pods/{pod['metadata']['name']}", {"gracePeriodSeconds": 0}
            )
        return not found

    wait_for(gone, 60.0, "the end of the agents", poll_s=0.5)


def prepare(cluster: Cluster) -> None:
    """Make what the chart expects of a cluster: nodes, namespaces, a class of runtimes, a job's pod."""
    for node, labels in NODES.items():
        cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": labels}})
    for space in ("watch", "team"):
        cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}})
    account = "/api/v1/namespaces/team/serviceaccounts/default"
    wait_for(lambda: "secrets" in cluster.call("GET", account)[1], 60.0, "the account's token", poll_s=0.5)
    cluster.create(
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia"}
    )
    spec = {"containers": [{"name": "main", "image": "training"}]}
    cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "worker-0"}, "spec": spec}, "team")


def look(cluster: Cluster) -> None:
    """All checks, on one cluster."""
    print(cluster.call("GET", "/version")[1]["gitVersion"])
    prepare(cluster)
    for switches in (set[str](), {"cordon"}, {"events"}, {"cordon", "events"}):
        everything = len(switches) == 2
        objects = render(EVERYTHING if everything else {switch: {"enabled": True} for switch in switches})
        for document in objects:
            cluster.create(document)
        look_at_agents(cluster, {"gpu-1", "gpu-2"} if everything else set(NODES), bool(switches))
        look_at_rights(cluster, switches | ({"trainJobs"} if everything else set()))
        if everything:
            run_script(cluster)
        remove(cluster, objects)
    for values in ({}, EVERYTHING):
        for recipe in RECIPES:
            for pod in pods(render({**values, "recipe": recipe}, "train")):
                cluster.create(pod, "team", "?dryRun=All")
    for on_nodes in (True, False) if importlib.util.find_spec("celpy") else ():
        look_at_injection(cluster, on_nodes)
    look_at_running(cluster)


def look_at_running(cluster: Cluster) -> None:
    """Every hollow node runs the agent's pod: it is scheduled, its volumes are there, and the kubelet says that it runs."""
    cluster.run_nodes(HOLLOW)
    for document in render({}):
        cluster.create(document)

    def run_all() -> bool:
        found = agents(cluster)
        return all(node in found and found[node]["status"]["phase"] == "Running" for node in HOLLOW)

    try:
        wait_for(run_all, 120.0, "the agents", poll_s=0.5)
    except AssertionError:
        print(*{one["message"] for one in cluster.list("/api/v1/namespaces/watch/events")}, sep="\n")
    check(run_all(), f"agents run on {', '.join(HOLLOW)}")


def main(binaries: Path) -> int:
    """Run everything; 1 if something is not as the chart says."""
    with tempfile.TemporaryDirectory(prefix="hw-kube-", dir="/tmp") as name:
        runner = JobRunner(Path(name) / "jobs")
        try:
            look(Cluster(binaries, Path(name), runner))
        finally:
            runner.end_all()
    print(f"{len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
