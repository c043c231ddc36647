"""The agent's image: the Dockerfile's own steps are run, the image is started, and finds a hang in another container's ranks.

The public base image could not be had: ``containers.py`` says what stands in for it.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from containers import REPOSITORY, Containers, fetch_packages, find_missing, make_base, own_storage, site_packages

from hangwatch.model.incident import Incident
from support import LONG_S, wait_for

DOCKERFILE = REPOSITORY / "deploy" / "docker" / "Dockerfile"
BASE, IMAGE = "docker.io/library/python:3.12-slim", "hangwatch"
MISSING = find_missing()
DEMOS = REPOSITORY / "watchdog" / "hangwatch" / "demos"

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="builds and runs containers, which takes root"),
    pytest.mark.skipif(
        sys.base_prefix == "/usr", reason="takes a Python built from source, to stand in for the public image's"
    ),
    pytest.mark.skipif(MISSING != "", reason=f"{MISSING} is missing; install it with 'apt-get install {MISSING}'"),
]


@pytest.fixture(scope="module")
def containers(real: None, long: None) -> Iterator[Containers]:
    """A storage with the image, built from the Dockerfile as it is."""
    with own_storage() as found:
        make_base(found, BASE)
        (extras,) = re.findall(r'"/src(\[.*\])"', DOCKERFILE.read_text())
        options = fetch_packages(found.folder, "hatchling", f"{REPOSITORY}{extras}")
        found.build(DOCKERFILE, IMAGE, REPOSITORY, *options)
        yield found


def inspect(containers: Containers, what: str, name: str) -> Any:
    """What podman knows of an image or a container."""
    (found,) = json.loads(containers.podman(what, "inspect", name))
    return found


def test_the_image_is_small_and_not_root(containers: Containers) -> None:
    """It adds less than 100 MB to its base, without torch; its user owns the state directory and has its own group."""
    image, base = inspect(containers, "image", IMAGE), inspect(containers, "image", BASE)
    assert image["Size"] - base["Size"] < 100e6
    assert (image["Config"]["User"], image["Config"]["Entrypoint"]) == ("65532:65532", ["hangwatch"])
    assert containers.run("--rm", "--entrypoint=id", IMAGE).split()[:2] == [
        "uid=65532(hangwatch)",
        "gid=65532(hangwatch)",
    ]
    owner = containers.run("--rm", "--entrypoint=stat", IMAGE, "--format=%U:%G %a", "/var/lib/hangwatch/state")
    assert owner.strip() == "hangwatch:hangwatch 700"
    assert image["Config"]["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    said = containers.run("--rm", IMAGE, "doctor", "--json")
    assert "not installed here; only the torch of the ranks matters" in said
    containers.run("--rm", "--entrypoint=python", IMAGE, "-c", "import apprise, opentelemetry.sdk, pynvml, redis")


@pytest.fixture
def training(containers: Containers) -> str:
    """A container in which two ranks hang. It has torch and no hangwatch, only what ``copy-probe`` has put into a volume.

    It has the labels and the namespace of a pod, and no token of an account.
    """
    containers.podman("volume", "create", "probe")
    containers.run("--rm", "--user=0", "--entrypoint=copy-probe", "--volume=probe:/probe", IMAGE, "/probe")
    name, podinfo = "training", containers.folder / "podinfo"
    podinfo.mkdir()
    (podinfo / "labels").write_text('jobset.sigs.k8s.io/jobset-name="llama"\n')
    containers.run(
        "--detach", f"--name={name}", "--user=1000:1000", "--volume=probe:/probe",
        f"--volume={site_packages()}:/opt/venv/lib/site-packages:ro", f"--volume={DEMOS}:/train:ro",
        "--env=PYTHONPATH=/probe/probe/site:/opt/venv/lib/site-packages", "--env=HANGWATCH_RUN_DIR=/probe/run",
        f"--volume={podinfo}:/etc/podinfo:ro", "--env=KUBERNETES_SERVICE_HOST=10.0.0.1", "--env=POD_NAMESPACE=team",
        "--env=HOME=/tmp", "--env=USER=ada",
        BASE, "python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "/train/rank_conditional.py",
    )  # fmt: skip
    return name


def test_a_hang_in_another_containers_ranks_is_found(containers: Containers, training: str) -> None:
    """They share the PID namespace and nothing else: beats, recorder and source are read through ``/proc/PID/root``."""
    containers.run(
        "--detach", "--name=agent", f"--pid=container:{training}", "--cap-add=SYS_PTRACE", "--user=1000:1000",
        "--env=HANGWATCH_STATE_DIR=/tmp/state", IMAGE,
    )  # fmt: skip

    def read_incident() -> Incident | None:
        running = inspect(containers, "container", "agent")["State"]["Running"]
        assert running, containers.podman("logs", "agent")
        text = containers.podman("exec", "agent", "sh", "-c", "cat /tmp/state/incidents/*/incident.json || true")
        return msgspec.json.decode(text, type=Incident) if text else None

    incident = wait_for(read_incident, LONG_S, "the agent to find the hang", poll_s=0.5)
    verdict = incident.verdict
    assert (verdict.kind, verdict.proven) == ("deadlock", True)
    assert verdict.cause is not None
    assert verdict.cause.id == "ranks-diverged"
    assert verdict.divergence is not None
    sides = (verdict.divergence.culprit, verdict.divergence.others)
    assert {side.file for side in sides if side is not None} == {"/train/rank_conditional.py"}
    assert {side.source for side in sides if side is not None} == {"dist.all_reduce(mean)", "dist.barrier()"}
    # The labels of the pod name the job, as the downward API would write them.
    assert incident.job.name == "team/llama"
    assert all(incident.captured[source] for source in ("stacks", "flight_recorder"))
    check = inspect(containers, "image", IMAGE)["Healthcheck"]["Test"]
    assert check[0] == "CMD"
    containers.podman("exec", "agent", *check[1:])
