"""etcd, an API server, its controllers and hollow nodes on loopback, and what the server makes of an object."""

from __future__ import annotations

import json
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from chart import Object

from support import JobRunner, find_free_port, wait_for

ADMIN = "admin-of-this-test"
failures: list[str] = []


def check(holds: object, said: str) -> None:
    """Print what was seen, and note what is not as it should be."""
    print(f"{'ok  ' if holds else 'FAIL'} {said}", flush=True)
    if not holds:
        failures.append(said)


class Cluster:
    """The server, with RBAC, and its controllers of DaemonSets, accounts and tokens. ``folder``: of all its files.

    Nodes are objects only, until ``run_nodes`` is called.
    """

    def __init__(self, binaries: Path, folder: Path, runner: JobRunner) -> None:
        self.binaries, self.folder, self.runner = binaries, folder, runner
        store, peers, port = find_free_port(), find_free_port(), find_free_port()
        self.server, self.certificate = f"https://127.0.0.1:{port}", folder / "apiserver.crt"
        key, tokens = folder / "accounts.key", folder / "tokens.csv"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        tokens.write_text(f"{ADMIN},admin,1,system:masters\n")

        self.start("etcd", data_dir=folder / "etcd", listen_client_urls=f"http://127.0.0.1:{store}",
            advertise_client_urls=f"http://127.0.0.1:{store}", listen_peer_urls=f"http://127.0.0.1:{peers}")  # fmt: skip
        self.start(binaries / "kube-apiserver", etcd_servers=f"http://127.0.0.1:{store}", bind_address="127.0.0.1",
            secure_port=port, cert_dir=folder, token_auth_file=tokens, authorization_mode="RBAC", service_account_key_file=key,
            service_account_signing_key_file=key, service_account_issuer="https://kubernetes.default.svc",
            service_cluster_ip_range="10.96.0.0/16", endpoint_reconciler_type="none")  # fmt: skip
        wait_for(self.is_ready, 300.0, "the API server", poll_s=0.5)
        config = {"apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "here", "cluster": {"server": self.server, "certificate-authority": str(self.certificate)}}],
            "users": [{"name": "admin", "user": {"token": ADMIN}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "admin"}}]}  # fmt: skip
        (folder / "ca.crt").write_bytes(self.certificate.read_bytes())
        (folder / "kubeconfig").write_text(json.dumps(config))
        self.start(binaries / "kube-controller-manager", kubeconfig=folder / "kubeconfig", service_account_private_key_file=key,
            root_ca_file=self.certificate, controllers="daemonset,serviceaccount,serviceaccount-token",
            secure_port=find_free_port(), port=0, cert_dir=folder / "controllers")  # fmt: skip

    def start(self, program: str | Path, **options: object) -> None:
        """Start a program with options as flags."""
        flags = (f"--{name.replace('_', '-')}={value}" for name, value in options.items())
        self.runner.start([str(program), *flags])

    def run_nodes(self, names: Iterable[str]) -> None:
        """Start a scheduler, and for each node a hollow kubelet: a real one over a container runtime that runs nothing."""
        access = self.folder / "kubeconfig"
        self.start(self.binaries / "kube-scheduler", kubeconfig=access, secure_port=0, port=find_free_port())
        for name in names:
            self.start(self.binaries / "kubemark", morph="kubelet", name=name, kubeconfig=access,
                kubelet_port=find_free_port(), kubelet_read_only_port=find_free_port())  # fmt: skip

    def is_ready(self) -> bool:
        """Whether it answers that it is."""
        try:
            return self.call("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def call(
        self, method: str, path: str, body: object = None, content: str = "application/json", token: str = ADMIN
    ) -> tuple[int, Any]:
        """The status and the answer to one request."""
        request = urllib.request.Request(  # noqa: S310  # on loopback
            self.server + path, None if body is None else json.dumps(body).encode(), method=method,
            headers={"Authorization": f"Bearer {token}", "Content-Type": content},
        )  # fmt: skip
        try:
            trusted = ssl.create_default_context(cafile=self.certificate)
            with urllib.request.urlopen(request, timeout=60.0, context=trusted) as answer:  # noqa: S310  # the same
                status, text = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read()
        return status, json.loads(text) if text.startswith(b"{") else text.decode()

    def list(self, path: str) -> list[Object]:
        """The objects at a path."""
        found: list[Object] = self.call("GET", path)[1]["items"]
        return found

    def place(self, document: Object, namespace: str) -> str | None:
        """The path for objects of this kind; None if the server does not know it."""
        version = document["apiVersion"]
        root = f"/api{'' if version == 'v1' else 's'}/{version}"
        status, found = self.call("GET", root)
        known = {one["kind"]: one for one in found["resources"] if "/" not in one["name"]} if status == 200 else {}
        if (kind := known.get(document["kind"])) is None:
            return None
        return f"{root}{f'/namespaces/{namespace}' if kind['namespaced'] else ''}/{kind['name']}"

    def create(self, document: Object, namespace: str = "watch", query: str = "") -> None:
        """Create an object. What the server refuses or leaves out is a failure; a kind that it does not know is said."""
        shown = f"{document['apiVersion']} {document['kind']} {document['metadata']['name']}"
        if (place := self.place(document, namespace)) is None:
            print(f"     {shown}: not known to this server")
            return
        status, found = self.call("POST", f"{place}{query}", document)
        lost = sorted(set(differences(document, found))) if status == 201 else [f"{status} {found}"[:600]]
        check(not lost, f"{shown}: {'; '.join(lost) or 'accepted whole'}")


def differences(sent: Any, stored: Any, path: str = "") -> Iterator[str]:
    """The fields that were sent and are not, or not so, in what the server has."""
    if isinstance(sent, dict) and isinstance(stored, dict):
        for key, value in sent.items():
            # The first is only written. Native sidecars are newer than 1.20 (1.28): the suite has their schema.
            if key == "stringData" or (key == "restartPolicy" and path.endswith("initContainers[]")):
                continue
            if key in stored:
                yield from differences(value, stored[key], f"{path}.{key}")
            elif value not in ({}, [], False):
                yield f"{path}.{key} is gone"
    elif isinstance(sent, list) and isinstance(stored, list) and len(sent) <= len(stored):
        for one, other in zip(sent, stored, strict=False):  # it adds the token's mount
            yield from differences(one, other, f"{path}[]")
    elif sent != stored and not (isinstance(sent, int) and str(sent) == stored):  # a quantity
        yield f"{path}: {sent!r} is {stored!r}"
