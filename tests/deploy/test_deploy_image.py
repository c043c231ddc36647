"""The agent's image: the Dockerfile's own steps are run, the image is started, and finds a hang in the pods of the chart.

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
from chart import Object, pods, render
from containers import REPOSITORY, Containers, fetch_packages, find_missing, make_base, own_storage, site_packages

from hangwatch.model.incident import Incident
from support import LONG_S, JobRunner, wait_for

sys.path.append(str(REPOSITORY / "tests" / "exchange"))
from servers import RedisServer

DOCKERFILE = REPOSITORY / "deploy" / "docker" / "Dockerfile"
BASE, IMAGE = "docker.io/library/python:3.12-slim", "hangwatch"
MISSING = find_missing()
SITE_PACKAGES = "/opt/venv/lib/site-packages"
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


def start_pod(containers: Containers, pod: Object, index: int, address: str) -> str:
    """Start a pod's containers as a kubelet would, and return the agent's.

    Pods share a network here, so agents have other ports, and the name of the first pod leads to itself.
    """
    probe, agent = pod["spec"]["initContainers"]
    (job,) = pod["spec"]["containers"]
    volume, network = f"--volume=hangwatch-{index}:/hangwatch", "none" if index == 0 else "container:job-0"
    containers.podman("volume", "create", f"hangwatch-{index}")
    containers.run(
        "--rm",
        "--user=0",
        "--cap-drop=ALL",
        f"--entrypoint={probe['command'][0]}",
        volume,
        IMAGE,
        *probe["command"][1:],
    )
    files = containers.folder / f"files-{index}"
    files.mkdir()
    (files / "labels").write_text('jobset.sigs.k8s.io/jobset-name="llama"\n')
    (files / "hosts").write_text("127.0.0.1 localhost train-node-0-0.train\n")
    (files / "resolv.conf").write_text("nameserver 127.0.0.1\n")  # refuses at once
    said = {
        **{entry["name"]: entry["value"] for entry in job["env"] if "value" in entry},
        "POD_NAMESPACE": "team", "KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOME": "/tmp", "USER": "ada",
        "GLOO_SOCKET_IFNAME": "lo",
    }  # fmt: skip
    replaced = {"$(JOB_COMPLETION_INDEX)": str(index), "train.py": "/train/rank_conditional.py"}
    assert job["command"][0] == "torchrun"
    containers.run(
        "--detach", f"--name=job-{index}", "--user=1000:1000", volume,
        f"--volume={files}/labels:/etc/podinfo/labels:ro", f"--volume={files}/hosts:/etc/hosts:ro",
        f"--volume={files}/resolv.conf:/etc/resolv.conf:ro",
        f"--volume={site_packages()}:{SITE_PACKAGES}:ro", f"--volume={DEMOS}:/train:ro",
        *(f"--env={name}={value}" for name, value in said.items()),
        BASE, "python", "-m", "torch.distributed.run", *(replaced.get(word, word) for word in job["command"][1:]),
        network=network,
    )  # fmt: skip
    capabilities = agent["securityContext"]["capabilities"]
    assert capabilities["drop"] == ["ALL"]
    containers.run(
        "--detach", f"--name=agent-{index}", f"--pid=container:job-{index}", volume, "--user=0", "--cap-drop=ALL",
        *(f"--cap-add={name}" for name in capabilities["add"]),
        *(f"--env={entry['name']}={entry['value']}" for entry in agent["env"] if "value" in entry),
        f"--env=HANGWATCH_NODE=node-{index}", f"--env=HANGWATCH_EXCHANGE={address}",
        IMAGE, *agent["args"], "--listen", f"127.0.0.1:{9753 + index}",
        network="container:job-0",
    )  # fmt: skip
    return f"agent-{index}"


@pytest.fixture
def agents(containers: Containers, jobs: JobRunner, free_port: int) -> Iterator[tuple[str, ...]]:
    """The agents of a JobSet of the chart: two pods with a rank each, which hang. Only the container of the job has torch."""
    values = {"recipe": "jobset", "job": {"nodes": 2, "gpus": 1}, "sidecar": {"pythonPath": SITE_PACKAGES}}
    (pod,) = pods(render(values, "train"))
    address = f"redis://127.0.0.1:{free_port}"
    first = start_pod(containers, pod, 0, address)
    network = f"/proc/{inspect(containers, 'container', 'job-0')['State']['Pid']}/ns/net"
    server = RedisServer(jobs, free_port, prefix=("nsenter", f"--net={network}"))
    server.start()
    yield first, start_pod(containers, pod, 1, address)
    server.kill()


def test_the_pods_of_a_job_have_one_verdict(containers: Containers, agents: tuple[str, ...]) -> None:
    """Each agent sees its own pod, with the rights that the chart gives it; they meet at a Redis, without torch.

    Heartbeats, recorder and source are read through ``/proc/PID/root``, and the labels of the pods name the job.
    """

    def read_incidents() -> list[Incident] | None:
        for agent in agents:
            running = inspect(containers, "container", agent)["State"]["Running"]
            assert running, containers.podman("logs", agent)
        show = ("sh", "-c", "cat /hangwatch/state/incidents/*/incident.json || true")
        texts = [containers.podman("exec", agent, *show) for agent in agents]
        return [msgspec.json.decode(text, type=Incident) for text in texts] if all(texts) else None

    incidents = wait_for(read_incidents, LONG_S, "both agents to know of the hang", poll_s=3.0)
    assert len({incident.id for incident in incidents}) == 1
    assert {incident.job.name for incident in incidents} == {"team/llama"}
    for verdict in (incident.verdict for incident in incidents):
        assert (verdict.kind, verdict.proven) == ("deadlock", True)
        assert verdict.cause is not None
        assert verdict.cause.id == "ranks-diverged"
        assert verdict.divergence is not None
        sides = (verdict.divergence.culprit, verdict.divergence.others)
        assert {side.file for side in sides if side is not None} == {"/train/rank_conditional.py"}
        assert {side.source for side in sides if side is not None} == {"dist.all_reduce(mean)", "dist.barrier()"}
    assert all(incident.captured[source] for incident in incidents for source in ("stacks", "flight_recorder"))
    check = inspect(containers, "image", IMAGE)["Healthcheck"]["Test"]
    assert check[0] == "CMD"
    containers.podman("exec", agents[0], *check[1:])
