"""The examples for Slurm on a real one: nodes of this machine, a job that hangs, found from inside it, and recovered."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from hangwatch.model.incident import Incident
from hangwatch.outputs.bundle.bundle import list_incidents
from support import LONG_S, SOURCE_ROOT, JobRunner, find_free_port, is_launcher_variable, wait_for

SLURM = Path(__file__).resolve().parents[2] / "deploy" / "slurm"

_PROGRAM = """
import torch, torch.distributed as dist

def train():
    for step in range(50):
        loss = torch.ones(1)
        dist.all_reduce(loss)
        if dist.get_rank() == 0 and step == 20:
            gathered = [torch.zeros(1) for _ in range(dist.get_world_size())]
            dist.all_gather(gathered, loss)

dist.init_process_group("gloo")
train()
"""

#: Hangs on one node, whichever job runs there, in a read that nobody answers.
_BAD_NODE = """
import os, torch, torch.distributed as dist

def read_licence():
    if os.environ["SLURMD_NODENAME"] == "n1":
        read_end, write_end = os.pipe()
        os.read(read_end, 1)

dist.init_process_group("gloo")
for step in range(50):
    if step == 20:
        read_licence()
    dist.all_reduce(torch.ones(1))
open("done-on-" + os.environ["SLURMD_NODENAME"], "w").close()
"""


@dataclass(frozen=True)
class Cluster:
    """A controller and three nodes, and what its commands need to find it."""

    environment: dict[str, str]
    folder: Path

    def call(self, *command: str | Path, **variables: str) -> str:
        """The output of a command of Slurm's. ``variables``: more of its environment."""
        env = {**self.environment, **variables}
        found = subprocess.run(
            command, env=env, cwd=self.folder, capture_output=True, text=True, check=False, timeout=LONG_S
        )
        assert found.returncode == 0, f"{command}: {found.stdout}{found.stderr}"
        return found.stdout

    def submit(self, name: str, changes: Sequence[tuple[str, str]], program: str = _PROGRAM, **variables: str) -> str:
        """Hand in an example as this machine can run it (``changes``: each once in it); the job's number."""
        text = (SLURM / name).read_text()
        for old, new in changes:
            assert text.count(old) == 1, f"{old!r} is in {name} {text.count(old)} times"
            text = text.replace(old, new)
        (self.folder / "train.py").write_text(program)
        (self.folder / name).write_text(text)
        return self.call("sbatch", "--parsable", "--output=%x.out", name, **variables).strip()

    def state(self, job: str) -> str:
        """``RUNNING``, ``FAILED``, .."""
        words = dict(word.split("=", 1) for word in self.call("scontrol", "show", "job", job).split() if "=" in word)
        return words["JobState"]

    def incidents(self, job: str) -> list[Incident]:
        """What the agents of a job have found."""
        places = self.folder.glob(f"hangwatch-{job}/*")
        return [incident for place in places for incident in list_incidents(place)]


@pytest.fixture(scope="module")
def cluster(real: None, long: None) -> Iterator[Cluster]:
    """A real one, of Debian's packages: ``munged``, ``slurmctld`` and three ``slurmd``, as whoever runs the tests."""
    # Sockets have to have short names.
    folder = Path(tempfile.mkdtemp(prefix="hw-slurm-", dir="/tmp"))
    folder.chmod(0o755)  # munge insists
    runner = JobRunner(folder / "jobs")
    user, host = pwd.getpwuid(os.getuid()).pw_name, socket.gethostname().partition(".")[0]
    ports = [find_free_port() for _ in range(4)]
    nodes = ("n1", "n2", "n3")
    (folder / "slurm.conf").write_text(
        f"""
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
AuthInfo=socket={folder}/munge.socket
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
MpiDefault=none
TaskProlog={SLURM}/prolog.sh
NodeName={nodes[0]} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4
NodeName={nodes[1]} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4
NodeName={nodes[2]} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[3]} CPUs=4
PartitionName=all Nodes={",".join(nodes)} Default=YES State=UP
"""
    )
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    binaries = Path(sys.executable).parent
    environment = {
        **{n: v for n, v in os.environ.items() if not is_launcher_variable(n)},
        "SLURM_CONF": str(folder / "slurm.conf"),
        "PATH": os.pathsep.join([str(binaries), os.environ["PATH"], "/usr/sbin", "/sbin"]),
        "PYTHONPATH": str(SOURCE_ROOT),
        "HANGWATCH": str(binaries / "hangwatch"),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    sbin = {name: shutil.which(name, path=environment["PATH"]) for name in ("munged", "slurmctld", "slurmd")}
    assert all(sbin.values()), f"missing: {sorted(name for name, path in sbin.items() if path is None)}"
    try:
        files = [
            f"--{n}={folder}/munge.{n.partition('-')[0]}"
            for n in ("socket", "key-file", "pid-file", "log-file", "seed-file")
        ]
        runner.start([str(sbin["munged"]), "--foreground", "--force", *files], environment)
        wait_for((folder / "munge.socket").exists, what="munged")
        runner.start([str(sbin["slurmctld"]), "-D", "-f", environment["SLURM_CONF"]], environment)
        for node in nodes:
            (folder / f"spool-{node}").mkdir()
            runner.start([str(sbin["slurmd"]), "-D", "-N", node, "-f", environment["SLURM_CONF"]], environment)
        found = Cluster(environment, folder)

        def ready() -> bool:
            shown = subprocess.run(
                ["sinfo", "--noheader", "--format=%D %t"], env=environment, capture_output=True, text=True, check=False
            )
            return shown.stdout.split() == ["3", "idle"]

        try:
            wait_for(ready, what="three idle nodes", poll_s=0.2)
        except AssertionError as error:
            said = "\n".join(path.read_text()[-2000:] for path in sorted((folder / "jobs").glob("*/std*")))
            raise AssertionError(f"{error}\n{said}") from None
        yield found
        # What a job has started is no child of ours: it would stay when the daemons are gone.
        found.call("scancel", f"--user={user}")
        wait_for(lambda: not found.call("squeue", "--noheader"), LONG_S, "the end of all jobs", poll_s=0.2)
    finally:
        runner.end_all()
        shutil.rmtree(folder)


#: Two ranks a node and no GPUs; both nodes are this machine, so that their agents cannot have one port, and torch is not
#: to look up their names.
_HERE = (
    ("#SBATCH --gpus-per-node=8\n", ""),
    ("0.0.0.0:9753", "127.0.0.1:0"),
    ("| head -n 1)", "| head -n 1 | sed s/n./127.0.0.1/)"),
)


def test_a_job_of_torchrun_is_watched_and_ended(cluster: Cluster) -> None:
    """``train.sbatch``: the agent beside each torchrun finds the hang, names rank 0 and ends the job, which fails."""
    job = cluster.submit(
        "train.sbatch",
        [
            *_HERE,
            ("--nproc-per-node 8", "--nproc-per-node 2"),
            ("MASTER_PORT=29500", f"MASTER_PORT={find_free_port()}"),
            ("--exchange tcp", f"--exchange tcp:{find_free_port()}"),
        ],
    )
    wait_for(lambda: cluster.state(job) not in {"PENDING", "RUNNING", "COMPLETING"}, LONG_S, "the end", poll_s=0.5)
    output = (cluster.folder / "train.out").read_text()
    found = [i.verdict for i in cluster.incidents(job) if 0 in i.verdict.culprit_ranks]
    assert found, output
    assert (found[0].kind, found[0].proven, found[0].culprit_ranks) == ("deadlock", True, (0,))
    assert cluster.state(job) == "FAILED"


def test_ranks_of_srun_are_watched_by_an_agent_of_the_job(cluster: Cluster) -> None:
    """``train-srun.sbatch``: srun starts the ranks, with the probe, and one agent a node in a step of its own."""
    changes = [
        *_HERE,
        ("#SBATCH --ntasks-per-node=8", "#SBATCH --ntasks-per-node=2"),
        (" --gpus-per-node=0", ""),
        ("MASTER_PORT=29500", f"MASTER_PORT={find_free_port()}"),
        (" --exchange tcp", ""),  # both agents see all ranks here
    ]
    job = cluster.submit("train-srun.sbatch", changes)

    def verdict() -> Incident | None:
        ended = cluster.state(job) not in {"PENDING", "RUNNING"}
        assert not ended, (cluster.folder / "train-srun.out").read_text()
        # Of two agents on a busy machine one may read no more than two ranks' records, and then names both.
        return next((i for i in cluster.incidents(job) if i.verdict.culprit_ranks == (0,)), None)

    try:
        found = wait_for(verdict, LONG_S, "the verdict", poll_s=0.5)
    finally:
        cluster.call("scancel", job)
    assert found is not None
    assert (found.verdict.kind, found.verdict.proven) == ("deadlock", True)
    wait_for(lambda: cluster.state(job) == "CANCELLED", LONG_S, "the end", poll_s=0.5)


@pytest.mark.waits
def test_a_node_that_has_the_culprits_again_is_drained_and_left_out(cluster: Cluster) -> None:
    """``recover.sh`` submits the job again after each hang; after the second it is without n1, and trains to its end."""
    shutil.copy(SLURM / "recover.sh", cluster.folder)
    output = cluster.folder / "train.out"
    history = cluster.folder / "history"
    done = [cluster.folder / f"done-on-{node}" for node in ("n2", "n3")]
    shutil.rmtree(history, ignore_errors=True)  # of an attempt before this one, as the cluster is all tests'
    for file in done:
        file.unlink(missing_ok=True)
    cluster.submit(
        "train.sbatch",
        [
            *_HERE,
            ("--nproc-per-node 8", "--nproc-per-node 1"),
            ("#SBATCH --job-name=train", f"#SBATCH --job-name=train\n#SBATCH --open-mode=append --output={output}"),
            ("MASTER_PORT=29500", f"MASTER_PORT={find_free_port()}"),
            ("--exchange tcp", f"--exchange tcp:{find_free_port()} --stall-after 6 --act-after 2"),
            ("--on-hang stop", '--on-hang "exec:bash recover.sh train.sbatch"'),
        ],
        _BAD_NODE,
        HANGWATCH_JOB="nightly",
        HANGWATCH_STATE_DIR=str(history),
    )
    try:
        try:
            wait_for(lambda: all(file.exists() for file in done), LONG_S, "the job without n1", poll_s=0.5)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{output.read_text()[-4000:]}") from None
        node = cluster.call("scontrol", "show", "node", "n1")
        assert "DRAIN" in node
        assert "Reason=hangwatch " in node
        found = {one.id: one for place in history.iterdir() for one in list_incidents(place)}
        first, second = (found[name] for name in sorted(found))
        for one in (first, second):
            assert (one.job.id, one.verdict.kind, len(one.verdict.culprit_ranks)) == ("nightly", "stall", 1)
            assert one.history is not None
            assert one.history.now.nodes == ("n1",)
        assert first.history is not None
        assert second.history is not None
        assert (first.history.exclude_nodes, second.history.exclude_nodes) == ((), ("n1",))
        assert second.history.number == 2
    finally:
        cluster.call("scontrol", "update", "nodename=n1", "state=resume")
