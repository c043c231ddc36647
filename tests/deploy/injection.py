"""What the policy of ``inject`` makes of a pod: cel-python evaluates its expressions, a real API server merges what comes out.

For ``on_api_server.py``, with ``cel-python`` installed. A server that knows such policies (1.36) does both itself: it
merges as for an apply and a JSON patch (apiserver/pkg/admission/plugin/policy/mutating/patch).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api_server import Cluster, check, differences
from chart import Object, pods, render, the

TEMPLATES = "/api/v1/namespaces/team/podtemplates"
#: One container has variables and a mount of its own, the other none.
OWN: Object = {
    "name": "main",
    "image": "training",
    "volumeMounts": [{"name": "own", "mountPath": "/etc/podinfo"}],
    "env": [
        {"name": "PYTHONPATH", "value": "/app"},
        {"name": "SPT_NOENV", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ],
}
SPEC: Object = {
    "containers": [OWN, {"name": "bare", "image": "training"}],
    "volumes": [{"name": "own", "emptyDir": {}}],
}
GIVEN = ({"PYTHONPATH": "/hangwatch/probe/site:/app", "SPT_NOENV": None, "HANGWATCH_RUN_DIR": "/hangwatch/run"},
    {"PYTHONPATH": "/hangwatch/probe/site", "SPT_NOENV": "1", "HANGWATCH_RUN_DIR": "/hangwatch/run"})  # fmt: skip


def evaluate(expression: str, pod: Object) -> Any:
    """What an expression makes of a pod. Each ``Object`` has to be called after its place, as the server insists."""
    import celpy

    class Made(celpy.celtypes.MapType):
        place = ""

    class Type(celpy.celtypes.MapType):
        def __init__(self, place: str) -> None:
            super().__init__()
            self.place = place

        def __getitem__(self, field: str) -> Type:
            return Type(f"{self.place}.{field}")

        def __call__(self, given: Mapping[str, Any]) -> Made:
            made = Made(given)
            made.place = self.place
            for field, value in given.items() if self.place != "JSONPatch" else ():
                place = f"{self.place}.{field}"
                for one in value if isinstance(value, list) else [value]:
                    if getattr(one, "place", place) != place:
                        check(False, f"{one.place} is in {place}")
            return made

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {str(key): plain(one) for key, one in value.items()}
        if isinstance(value, list):
            return [plain(one) for one in value]
        if isinstance(value, celpy.celtypes.BoolType):
            return bool(value)
        return int(value) if isinstance(value, int) else str(value)

    environment = celpy.Environment()
    given = {"Object": Type("Object"), "JSONPatch": Type("JSONPatch"), "object": celpy.json_to_cel(pod)}
    return plain(environment.program(environment.compile(expression)).evaluate(given))


def look_at_injection(cluster: Cluster, on_nodes: bool) -> None:
    """What the pod has stays; the rest is as in the examples; and no pod is changed twice."""
    values = {"agent": {"enabled": on_nodes}, "sidecar": {"agent": not on_nodes}}
    policy = the("MutatingAdmissionPolicy", render({**values, "inject": {"enabled": True}}), "hangwatch-watch-inject")[
        "spec"
    ]
    (condition,) = policy["matchConditions"]
    body: Object = {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": "labelled"},
        "template": {"spec": SPEC},
    }
    cluster.create(body, "team")
    check(evaluate(condition["expression"], {"spec": SPEC}), f"{condition['name']}: a pod without hangwatch is changed")
    # The other way round: a template has to be valid in between.
    for mutation in reversed(policy["mutations"]):
        pod = cluster.call("GET", f"{TEMPLATES}/labelled")[1]["template"]
        if mutation["patchType"] == "JSONPatch":
            found = evaluate(mutation["jsonPatch"]["expression"], pod)
            change: Any = [{**one, "path": f"/template{one['path']}"} for one in found]
            query, content = "", "application/json-patch+json"
        else:
            change = {**body, "template": evaluate(mutation["applyConfiguration"]["expression"], pod)}
            query, content = "?fieldManager=policy&force=true", "application/apply-patch+yaml"
        status, answer = cluster.call("PATCH", f"{TEMPLATES}/labelled{query}", change, content)
        check(status == 200, f"{mutation['patchType']}: {status} {'' if status == 200 else answer}")
    pod = cluster.call("GET", f"{TEMPLATES}/labelled")[1]["template"]
    check(not evaluate(condition["expression"], pod), f"{condition['name']}: no pod is changed twice")
    cluster.create(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "labelled"}, "spec": pod["spec"]},
        "team",
        "?dryRun=All",
    )
    (example,) = pods(render({**values, "recipe": "jobset"}, "train"))
    expected = {**example["spec"], "volumes": SPEC["volumes"] + example["spec"]["volumes"]}
    for field in ("initContainers", "volumes"):
        lost = [*differences(expected[field], pod["spec"][field], field)]
        check(not lost, f"{field} as in the example {lost}")
    check(
        pod["spec"].get("shareProcessNamespace", False) is not on_nodes,
        "the namespace of processes is shared for a sidecar",
    )
    for container, given in zip(pod["spec"]["containers"], GIVEN, strict=True):
        variables = {one["name"]: one.get("value") for one in container["env"]}
        check(variables == given, f"{container['name']}: {variables}")
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        podinfo = "own" if container["name"] == "main" else "hangwatch-podinfo"
        check(mounts == {"/hangwatch": "hangwatch", "/etc/podinfo": podinfo}, f"{container['name']}: {mounts}")
    cluster.call("DELETE", f"{TEMPLATES}/labelled")
