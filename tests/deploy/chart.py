"""The Helm chart as Helm's own engine renders it, and what is in its objects."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

helm_python = pytest.importorskip("helm_python", reason="helm-python-sdk has no build for this machine")

CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "hangwatch"
RECIPES = ("trainjob", "pytorchjob", "jobset", "rayjob", "leaderworkerset", "volcano")
#: What a pod's template is called, and where one is below other templates, it is the one with containers.
_TEMPLATES = frozenset({"template", "leaderTemplate", "workerTemplate"})
#: Names are the user's in them; rules are what Prometheus' own tool checks.
_LEAVES = frozenset({"labels", "annotations", "matchLabels", "rules"})
Object = dict[str, Any]
#: Every switch on, and every list and mapping filled.
EVERYTHING: Mapping[str, Any] = yaml.safe_load("""
image: {repository: registry.example.org/hangwatch, tag: "1", pullSecrets: [{name: registry}]}
agent:
  nodeSelector: {nvidia.com/gpu.present: "true"}
  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
    {matchExpressions: [{key: kubernetes.io/arch, operator: In, values: [amd64]}]}]}}}
  runtimeClassName: nvidia
  env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]
settings:
  stall_after_s: 60
  external_url: "https://watch.example.org/{node}"
  on_hang: {action: "restart,exec:python3 /etc/hangwatch/cluster.py event cordon", only_proven: true, limit_per_hour: 3}
  bundles: {max_count: 100, max_size_gb: 2.5}
state: {kind: persistentVolumeClaim, claim: {storageClassName: shared}}
secret: {name: keys, variables: {HANGWATCH_TOKEN: a-token-of-the-page}}
valkey: {enabled: true, password: secret}
cordon: {enabled: true}
events: {enabled: true, trainJobs: true}
inject: {enabled: true}
networkPolicy: {from: [{namespaceSelector: {}}], to: [{ports: [{port: 443, protocol: TCP}]}]}
podMonitor: {enabled: true, labels: {release: prometheus}}
prometheusRule: {enabled: true, labels: {release: prometheus}}
dashboards: {enabled: true, annotations: {grafana_folder: hangwatch}}
alertmanagerConfig:
  enabled: true
  labels: {release: prometheus}
  hangs: {slackConfigs: [{channel: "#training", apiURL: {name: slack, key: url}}]}
  others: {webhookConfigs: [{url: "https://hooks.example.org/"}]}
sidecar: {args: [--on-hang, restart], pythonPath: /app, claim: bundles}
job: {nodes: 3, gpus: 4}
""")


@functools.cache
def load() -> Any:
    """The chart, loaded once."""
    return helm_python.Chart.load(CHART)


def render(values: Mapping[str, Any] | None = None, name: str = "hangwatch") -> list[Object]:
    """All objects that ``helm install NAME`` would make in the namespace ``watch``, in the order of their files."""
    files = load().render(dict(values or {}), name=name, namespace="watch")
    texts = [text for path, text in sorted(files.items()) if path.endswith(".yaml")]
    return [found for text in texts for found in yaml.load_all(text, yaml.CSafeLoader) if found]  # a safe loader


def load_script(path: Path) -> ModuleType:
    """A script of the chart as a module."""
    spec = importlib.util.spec_from_file_location(f"chart_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def all_objects() -> Iterator[Object]:
    """Every object of every kind, at the defaults and with everything on."""
    for values in ({}, EVERYTHING):
        yield from render(values)
        for recipe in RECIPES:
            yield from render({**values, "recipe": recipe}, "train")


def the(kind: str, objects: list[Object], name: str = "hangwatch") -> Object:
    """The one object of this kind and name."""
    (found,) = [one for one in objects if one["kind"] == kind and one["metadata"]["name"] == name]
    return found


def pods(document: Any) -> Iterator[Object]:
    """Every pod in a workload, as an object of its own."""
    if isinstance(document, dict):
        for key, value in document.items():
            if key in _TEMPLATES and "containers" in value.get("spec", {}):
                yield {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", **value.get("metadata", {})},
                       "spec": value["spec"]}  # fmt: skip
            else:
                yield from pods(value)
    elif isinstance(document, list):
        for value in document:
            yield from pods(value)


def fields(document: Any, path: str = "") -> Iterator[str]:
    """Every field of an object, ``spec.tasks[].name``; a pod's template is one field, as is what names what it likes."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield (here := f"{path}.{key}".lstrip("."))
            if key not in _LEAVES and not (key in _TEMPLATES and "containers" in value.get("spec", {})):
                yield from fields(value, here)
    elif isinstance(document, list):
        for value in document:
            yield from fields(value, f"{path}[]")
