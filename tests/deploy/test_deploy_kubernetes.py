"""The manifests: valid for Kubernetes, whole, and what they say of processes, users and paths fits together."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from hangwatch.config.toml import read_config

KUBERNETES = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
DOCKER = KUBERNETES.parent / "docker"
#: What we say works: native sidecars are there since 1.29.
VERSIONS = ("1.29", "1.33")
FOLDERS = ("daemonset", "sidecar")


def documents(folder: str) -> list[dict[str, Any]]:
    """All objects that a folder's kustomization names."""
    place = KUBERNETES / folder
    kustomization = yaml.safe_load((place / "kustomization.yaml").read_text())
    texts = [(place / name).read_text() for name in kustomization["resources"]]
    return [one for text in texts for one in yaml.safe_load_all(text)]


def pod_of(document: dict[str, Any]) -> dict[str, Any] | None:
    """The pod's template in a workload."""
    spec = document.get("spec", {})
    if document["kind"] == "PyTorchJob":
        template: dict[str, Any] = spec["pytorchReplicaSpecs"]["Worker"]["template"]
    elif document["kind"] == "TrainingRuntime":
        template = spec["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    elif document["kind"] == "DaemonSet":
        template = spec["template"]
    else:
        return None
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod", **template.get("metadata", {})},
        "spec": template["spec"],
    }


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every pod of ours by its workload's kind."""
    for folder in FOLDERS:
        for document in documents(folder):
            pod = pod_of(document)
            if pod is not None:
                yield document["kind"], pod


@pytest.mark.parametrize("version", VERSIONS)
def test_objects_and_pods_are_valid(version: str) -> None:
    """Objects of Kubernetes itself by its schema, pods in objects of Kubeflow by that of a pod; no unknown field in either."""
    validated = []
    for folder in FOLDERS:
        for document in documents(folder):
            if document["apiVersion"] in {"v1", "apps/v1"}:
                kubernetes_validate.validate(document, version, strict=True)
                validated.append(document["kind"])
    for kind, pod in pods():
        kubernetes_validate.validate(pod, version, strict=True)
        validated.append(f"pod of {kind}")
    assert sorted(validated) == [
        "DaemonSet",
        "Namespace",
        "pod of DaemonSet",
        "pod of PyTorchJob",
        "pod of TrainingRuntime",
    ]


def test_a_mistake_would_be_seen() -> None:
    """The schema is strict: a misspelt field is refused."""
    pod = dict(pods())["DaemonSet"]
    pod["spec"]["hostPid"] = True
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(pod, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("kind", ["PyTorchJob", "TrainingRuntime"])
def test_the_sidecar_and_the_training_share_what_they_have_to(kind: str) -> None:
    """One process namespace, the probe and the run directory on a volume both mount, the right to read, nothing else."""
    spec = dict(pods())[kind]["spec"]
    assert spec["shareProcessNamespace"]
    probe, agent = spec["initContainers"]
    (training,) = spec["containers"]
    (volume,) = spec["volumes"]
    assert volume["emptyDir"]["medium"] == "Memory"
    for container in (probe, agent, training):
        assert [m["mountPath"] for m in container["volumeMounts"]] == ["/hangwatch"]
        assert container["volumeMounts"][0]["name"] == volume["name"]
    assert probe["command"] == ["copy-probe", "/hangwatch"]
    assert {
        e["name"]: e["value"] if "value" in e else e["valueFrom"]["fieldRef"]["fieldPath"] for e in training["env"]
    } == {
        "PYTHONPATH": "/hangwatch/probe/site",
        "HANGWATCH_RUN_DIR": "/hangwatch/run",
        "POD_NAME": "metadata.name",
        "POD_NAMESPACE": "metadata.namespace",
    }
    assert agent["restartPolicy"] == "Always"
    assert agent["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_PTRACE", "DAC_OVERRIDE"]}
    assert agent["ports"][0]["name"] == "hangwatch", "the name that Prometheus looks for"


def test_the_daemonset_sees_the_node_and_writes_only_its_state() -> None:
    """The node's processes, a read-only root, three capabilities, no token of Kubernetes, and settings that can be read."""
    spec = dict(pods())["DaemonSet"]["spec"]
    (agent,) = spec["containers"]
    assert spec["hostPID"]
    assert not spec["automountServiceAccountToken"]
    assert agent["securityContext"]["readOnlyRootFilesystem"]
    assert agent["securityContext"]["capabilities"] == {
        "drop": ["ALL"],
        "add": ["SYS_PTRACE", "DAC_OVERRIDE", "SYSLOG"],
    }
    assert {e["name"] for e in agent["env"]} == {"HANGWATCH_NODE"}
    settings = read_config(KUBERNETES / "daemonset" / "hangwatch.toml")
    mounted = [m["mountPath"] for m in agent["volumeMounts"]]
    assert settings.state_dir in mounted
    assert str(Path(settings.token_file).parent) in mounted
    assert {v["name"] for v in spec["volumes"]} == {m["name"] for m in agent["volumeMounts"]}
    assert agent["args"] == ["agent", "--config", "/etc/hangwatch/hangwatch.toml"]


def test_the_image_leaves_root_and_holds_what_is_copied() -> None:
    """The Dockerfile ends as a user that is not root; what it copies is there, and the ignore file lets it through."""
    lines = (DOCKER / "Dockerfile").read_text().splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users == ["65532:65532"]
    root = DOCKER.parents[1]
    copied = [line.split()[1] for line in lines if line.startswith("COPY ") and "--from" not in line]
    assert all((root / name).exists() for name in copied)
    allowed = {
        line[1:] for line in (DOCKER / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")
    }
    assert {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "watchdog",
        "docs/causes",
        "deploy/docker/copy-probe.sh",
    } == allowed
    assert all((root / name).exists() for name in allowed)


@pytest.mark.usefixtures("real")
def test_a_copied_probe_is_loaded_where_hangwatch_is_not(tmp_path: Path) -> None:
    """What the init container leaves behind is enough for a Python without hangwatch, and its run directory is usable."""
    import os
    import sys

    from support import SOURCE_ROOT

    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run([DOCKER / "copy-probe.sh", tmp_path], check=True, env={"PATH": path, "PYTHONPATH": str(SOURCE_ROOT)})
    code = "import sys; print('_hangwatch_probe' in sys.modules, 'hangwatch' in sys.modules)"
    reported = subprocess.run(
        [sys.executable, "-S", "-c", f"import site; site.main(); {code}"],
        env={"PYTHONPATH": str(tmp_path / "probe/site"), "HANGWATCH_RUN_DIR": str(tmp_path / "run")},
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert reported.stdout.split() == ["True", "False"]
    assert list((tmp_path / "run" / "ranks").iterdir()) == [], "the probe has left no complaint"


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(("nodes", "called"), [("", []), ("node-a,node-b", ["cordon node-a", "cordon node-b"])])
def test_nodes_worth_leaving_out_are_cordoned(tmp_path: Path, nodes: str, called: list[str]) -> None:
    """``cordon.sh``, sound for shellcheck, with a stand-in for kubectl that records its arguments: there is no cluster here."""
    script, calls = KUBERNETES / "cordon.sh", tmp_path / "calls"
    calls.touch()
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n')
    kubectl.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HANGWATCH_EXCLUDE_NODES": nodes}
    assert subprocess.run(["sh", script], env=environment, check=False).returncode == 0
    assert subprocess.run(["shellcheck", script], check=False).returncode == 0
    assert calls.read_text().splitlines() == called
