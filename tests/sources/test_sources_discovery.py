"""Ranks among real processes: the topmost Python process of its rank, and none of its relatives."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from hangwatch.model.beats import Beat
from hangwatch.sources.discovery.found_jobs import FoundJob
from hangwatch.sources.discovery.ranks import Discovery, RankFinder
from hangwatch.sources.proc.files import node_name, read_stat
from support import Job, JobRunner, find_free_port, wait_for

PROGRAM = Path(__file__).resolve().parent / "rank_program.py"
HANGING = Path(__file__).resolve().parent.parent / "fixtures" / "hanging.py"
#: Ranks that meet at a loopback address are of this host alone, whatever port another one uses.
HERE = f"{node_name()}:29765"
PLAIN = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29765"}

SPAWN = """
import os, sys, time
import torch, torch.distributed as dist, torch.multiprocessing as mp

def run(rank, folder):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", sys.argv[2] if len(sys.argv) > 2 else "0"
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:" + open(folder + "/port").read(), rank=rank, world_size=2)
    loader = torch.utils.data.DataLoader(torch.arange(4), num_workers=1, multiprocessing_context="spawn")
    batches = iter(loader)
    next(batches)
    open(f"{folder}/{rank}.new", "w").write(str(os.getpid()))
    os.rename(f"{folder}/{rank}.new", f"{folder}/{rank}")
    time.sleep(3600)

if __name__ == "__main__":
    mp.spawn(run, (sys.argv[1],), nprocs=2)
"""


class Stand:
    """A folder in which stand-ins for ranks say who they are."""

    def __init__(self, folder: Path, jobs: JobRunner) -> None:
        self.folder = folder
        self.jobs = jobs

    def command(self, name: str, *flags: str, program: Path = PROGRAM) -> list[str]:
        """The command line of one stand-in."""
        return [sys.executable, str(program), str(self.folder), name, *flags]

    def start(self, name: str, *flags: str, program: Path = PROGRAM, start: Any = (), **env: str) -> Job:
        """Start one, with children, and wait until all are up."""
        started = self.jobs.start(self.command(name, *flags, program=program), env={"START": json.dumps(start), **env})
        self.pid(name)
        return started

    def child(self, name: str, *flags: str, **env: str) -> dict[str, Any]:
        """A child to be started by another."""
        return {"command": self.command(name, *flags), "env": env}

    def pid(self, name: str) -> int:
        """Wait until a stand-in is up; its pid."""
        wait_for((self.folder / name).exists, what=name)
        return int((self.folder / name).read_text())


@pytest.fixture
def stand(tmp_path: Path, jobs: JobRunner) -> Stand:
    """Starts stand-ins."""
    (tmp_path / "stand").mkdir()
    return Stand(tmp_path / "stand", jobs)


def make_beat(pid: int, rank: int, initialized: bool = True, world_size: int = 2) -> Beat:
    """A beat of a living process."""
    stat = read_stat(pid)
    assert stat is not None
    return Beat(1, pid, stat.start_ticks, 1, 1, rank=rank, world_size=world_size, initialized=initialized)


def pids(found: Discovery) -> dict[str, dict[int, int]]:
    """Pid by rank, by job."""
    return {one.job.id: {rank.rank: rank.pid for rank in one.ranks} for one in found.jobs}


def only(found: Discovery) -> FoundJob:
    """The one job found."""
    assert len(found.jobs) == 1, found
    return found.jobs[0]


def test_a_job_of_which_only_zombies_are_left_is_over(stand: Stand) -> None:
    """Whoever started the ranks does not ask how they ended: the first zombie is a rank still, the last one is no job."""
    ranks = [PLAIN | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in (0, 1)]
    started = [{"command": stand.command(f"rank{rank}"), "env": ranks[rank]} for rank in (0, 1)]
    above = stand.start("above", start=started)
    finder = RankFinder()
    both = {rank: stand.pid(f"rank{rank}") for rank in (0, 1)}
    assert pids(finder.find(above.pid)) == {HERE: both}
    for left in ({HERE: both}, {}):
        gone = psutil.Process(both[1] if left else both[0])
        gone.kill()
        wait_for(lambda gone=gone: gone.status() == psutil.STATUS_ZOMBIE, what="a zombie")
        assert pids(finder.find(above.pid)) == left


def test_torchrun_with_loader_workers(jobs: JobRunner, tmp_path: Path) -> None:
    """Under torchrun the ranks are its workers, not itself, and not the DataLoader's worker that inherits RANK."""
    job = jobs.torchrun(HANGING, "dataloader", str(tmp_path), "--api-key", "hunter2")
    ready = {rank: tmp_path / f"{rank}.ready" for rank in (0, 1)}
    wait_for(lambda: all(path.exists() for path in ready.values()), 60, what="both ranks")
    loader = int(ready[1].read_text())
    wait_for(lambda: psutil.Process(loader).children(), what="the loader's worker")
    found = only(RankFinder().find(job.pid))
    assert {rank.rank: rank.pid for rank in found.ranks} == {
        rank: int(path.read_text()) for rank, path in ready.items()
    }
    assert [(rank.local_rank, rank.restart, rank.node) for rank in found.ranks] == [
        (0, 0, os.uname().nodename),
        (1, 0, os.uname().nodename),
    ]
    assert found.ranks[0].start_time == pytest.approx(psutil.Process(found.ranks[0].pid).create_time(), abs=1.1)
    assert (found.job.world_size, found.job.launcher) == (2, "torchrun")
    assert "torch.distributed.run" in found.job.command
    assert "hunter2" not in found.job.command
    assert found.job.script.endswith(".py")
    assert found.job.script in found.job.command
    assert found in RankFinder().find(None).jobs


def test_spawned_ranks_without_probe(jobs: JobRunner, tmp_path: Path, free_port: int) -> None:
    """Processes of mp.spawn meet at one store: they are ranks in order of start, and a Gap says that this was inferred."""
    script = tmp_path / "spawn.py"
    script.write_text(SPAWN)
    (tmp_path / "port").write_text(str(free_port))
    job = jobs.python(script, str(tmp_path))
    wait_for(lambda: all((tmp_path / str(rank)).exists() for rank in (0, 1)), 90, what="both ranks")
    found = RankFinder().find(job.pid)
    ranks = {rank: int((tmp_path / str(rank)).read_text()) for rank in (0, 1)}
    assert pids(found) == {f"pid-{job.pid}": ranks}
    assert only(found).job.launcher == "plain"
    assert "spawn.py" in only(found).job.command
    assert only(found).job.script == str(script)
    assert "order of their start" in found.gaps[0].reason
    beats = {pid: make_beat(pid, 1 - rank) for rank, pid in ranks.items()}
    probed = RankFinder().find(job.pid, beats)
    assert pids(probed) == {f"pid-{job.pid}": {0: ranks[1], 1: ranks[0]}}
    assert only(probed).job.world_size == 2
    assert probed.gaps == ()


BEHIND = """
import os, sys, time
import torch, torch.multiprocessing as mp

def run(rank, folder):
    open(f"{folder}/{rank}.new", "w").write(str(os.getpid()))
    os.rename(f"{folder}/{rank}.new", f"{folder}/{rank}")
    time.sleep(3600)

if __name__ == "__main__":
    mp.spawn(run, (sys.argv[1],), nprocs=3)
"""


#: Ranks by order of start: those that are known, of how many, and those that are found.
NOT_SAID_YET = (
    ({0: 0, 2: 2}, 3, {0: 0, 1: 1, 2: 2}),  # one behind
    ({1: 1}, 3, {0: 0, 1: 1, 2: 2}),  # two behind
    ({0: 2, 2: 0}, 3, {0: 2, 2: 0}),  # another order
    ({0: 0, 2: 2}, 4, {0: 0, 2: 2}),  # another number
)


def test_a_spawned_rank_that_has_not_said_so_yet(jobs: JobRunner, tmp_path: Path) -> None:
    """Of as many processes as the world has ranks, in the order of their start: else nothing is inferred."""
    script = tmp_path / "behind.py"
    script.write_text(BEHIND)
    job = jobs.python(script, str(tmp_path))
    wait_for(lambda: all((tmp_path / str(at)).exists() for at in range(3)), 90, what="the processes")
    by_order = {at: int((tmp_path / str(at)).read_text()) for at in range(3)}
    for known, world_size, found in NOT_SAID_YET:
        beats = {by_order[at]: make_beat(by_order[at], rank, world_size=world_size) for at, rank in known.items()}
        seen = RankFinder().find(job.pid, beats)
        assert pids(seen) == {f"pid-{job.pid}": {rank: by_order[at] for at, rank in found.items()}}
        assert bool(seen.gaps) is (len(found) > len(known))


def test_plain_environment(stand: Stand) -> None:
    """Two processes started by hand with RANK are one job, named by where they meet: at a port that no other test's ranks use."""
    port = str(find_free_port())
    for rank, name in enumerate(("zero", "one")):
        stand.start(name, "torch", RANK=str(rank), **PLAIN | {"MASTER_PORT": port})
    assert pids(RankFinder().find())[f"{node_name()}:{port}"] == {0: stand.pid("zero"), 1: stand.pid("one")}


def test_a_job_is_known_by_what_its_user_and_its_scheduler_call_it(stand: Stand) -> None:
    """Name, number, user, pod and program, from the environment and the command line of a rank."""
    known = {
        "SLURM_JOB_NAME": "llama", "SLURM_JOB_ID": "4711", "USER": "ada", "POD_NAME": "llama-0", "POD_NAMESPACE": "team-a",
    }  # fmt: skip
    job = stand.start("zero", "torch", RANK="0", **PLAIN, **known)
    found = only(RankFinder().find(job.pid)).job
    assert (found.name, found.slurm_job, found.user) == ("llama", "4711", "ada")
    assert (found.pod, found.namespace, found.script) == ("llama-0", "team-a", str(PROGRAM))


def test_wrappers_are_no_ranks(stand: Stand) -> None:
    """A shell above the rank, and a Python wrapper without torch, give way to what they run."""
    inner = " ".join(stand.command("shelled", "torch"))
    shell = stand.jobs.start(["sh", "-c", f"{inner}; true"], env={"RANK": "0", "LOCAL_RANK": "0", **PLAIN})
    stand.pid("shelled")
    assert pids(RankFinder().find(shell.pid)) == {HERE: {0: stand.pid("shelled")}}
    wrapper = stand.start("wrapper", start=[stand.child("wrapped", "torch")], RANK="0", LOCAL_RANK="0", **PLAIN)
    stand.pid("wrapped")
    assert pids(RankFinder().find(wrapper.pid)) == {HERE: {0: stand.pid("wrapped")}}


def test_rank_before_it_has_loaded_torch(stand: Stand) -> None:
    """A rank that a launcher placed is one before its first import; a tool that merely inherited RANK is none."""
    placed = stand.start("placed", RANK="1", LOCAL_RANK="1", **PLAIN)
    tool = stand.start("tool", RANK="0", **PLAIN)
    assert pids(RankFinder().find(placed.pid)) == {HERE: {1: placed.pid}}
    assert pids(RankFinder().find(tool.pid)) == {}


def test_launcher_in_a_pod_with_a_rank(stand: Stand, tmp_path: Path) -> None:
    """Where the pod gives torchrun itself a RANK, its workers are the ranks; its helpers with the pod's RANK are none."""
    launcher = tmp_path / "torchrun"
    launcher.write_text(PROGRAM.read_text())
    elastic = {"LOCAL_RANK": "0", "TORCHELASTIC_RUN_ID": "run7", "WORLD_SIZE": "16"}
    children = [stand.child("worker", "torch", RANK="8", **elastic), stand.child("helper", "torch")]
    job = stand.start("launcher", "torch", program=launcher, start=children, RANK="1", **PLAIN)
    stand.pid("helper")
    found = only(RankFinder().find(job.pid)) if stand.pid("worker") else None
    assert found is not None
    assert (found.job.id, found.job.world_size, found.job.launcher) == ("run7", 16, "torchrun")
    assert {rank.rank: rank.pid for rank in found.ranks} == {8: stand.pid("worker")}
    assert [rank.supervisor for rank in found.ranks] == [job.pid]


def test_unknown_launcher_in_a_pod_with_a_rank(stand: Stand) -> None:
    """A program that starts ranks inside its own process tree is their launcher, known by name or not."""
    elastic = {"LOCAL_RANK": "0", "TORCHELASTIC_RUN_ID": "run7"}
    job = stand.start("tool", "torch", start=[stand.child("worker", "torch", RANK="3", **elastic)], RANK="1", **PLAIN)
    stand.pid("worker")
    assert pids(RankFinder().find(job.pid)) == {"run7": {3: stand.pid("worker")}}
    found = only(RankFinder().find(job.pid))
    assert found.job.launcher == "torchrun"
    assert [rank.supervisor for rank in found.ranks] == [job.pid]


def test_only_torchrun_starts_ranks_anew(stand: Stand) -> None:
    """A rank that no torchrun has started is nobody's to start again."""
    rank = stand.start("placed", RANK="1", LOCAL_RANK="1", **PLAIN)
    assert [rank.supervisor for rank in only(RankFinder().find(rank.pid)).ranks] == [None]


def test_restarted_rank_replaces_the_old(stand: Stand) -> None:
    """Of two claims to one rank the later restart wins, else the newer process."""
    elastic = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "run8"}
    newer = stand.start("restarted", "torch", TORCHELASTIC_RESTART_COUNT="1", **elastic)
    stand.start("late", "torch", TORCHELASTIC_RESTART_COUNT="0", **elastic)
    found = next(job for job in RankFinder().find().jobs if job.job.id == "run8")
    assert [(rank.pid, rank.restart) for rank in found.ranks] == [(newer.pid, 1)]
    again = stand.start("again", "torch", TORCHELASTIC_RESTART_COUNT="1", **elastic)
    assert pids(RankFinder().find())["run8"] == {0: again.pid}


def test_orphans_never_become_the_rank(stand: Stand) -> None:
    """When a rank is killed, what it leaves behind is not taken for it."""
    env = {"RANK": "0", "LOCAL_RANK": "0", "TORCHELASTIC_RUN_ID": "run9"}
    rank = stand.start("rank", "torch", start=[stand.child("orphan", "torch")], **env)
    stand.pid("orphan")
    finder = RankFinder()
    assert pids(finder.find())["run9"] == {0: rank.pid}
    rank.send(signal.SIGKILL)
    rank.wait()
    assert psutil.pid_exists(stand.pid("orphan"))
    assert "run9" not in pids(finder.find())


def test_exec_is_noticed(stand: Stand, tmp_path: Path) -> None:
    """A process that becomes a rank by exec, after it was seen, is found."""
    os.mkfifo(tmp_path / "go")
    inner = " ".join(stand.command("late", "torch"))
    job = stand.jobs.start(["sh", "-c", f"read x < {tmp_path}/go; export RANK=1 LOCAL_RANK=1; exec {inner}"], env=PLAIN)
    finder = RankFinder()
    assert pids(finder.find(job.pid)) == {}
    (tmp_path / "go").write_text("\n")
    stand.pid("late")
    assert pids(finder.find(job.pid)) == {HERE: {1: job.pid}}


def test_root_restricts_and_remembers(stand: Stand) -> None:
    """Only descendants of the root count, also those whose parent is gone by now; a probed process counts anyway."""
    env = {"RANK": "0", "LOCAL_RANK": "0", **PLAIN}
    root = stand.start(
        "root", start=[stand.child("middle", **{"START": json.dumps([stand.child("leaf", "torch", **env)])})]
    )
    stranger = stand.start("stranger", "torch", RANK="1", LOCAL_RANK="1", **PLAIN)
    middle, leaf = stand.pid("middle"), stand.pid("leaf")
    finder = RankFinder()
    assert pids(finder.find(root.pid)) == {HERE: {0: leaf}}
    os.kill(middle, signal.SIGKILL)
    wait_for(lambda: psutil.Process(leaf).ppid() != middle, what="the leaf to lose its parent")
    assert pids(finder.find(root.pid)) == {HERE: {0: leaf}}
    both = finder.find(root.pid, {stranger.pid: make_beat(stranger.pid, 1)})
    assert pids(both) == {HERE: {0: leaf, 1: stranger.pid}}
    assert pids(finder.find(stranger.pid)) == {HERE: {1: stranger.pid}}


def test_a_leftover_port_makes_no_job_of_its_own(stand: Stand) -> None:
    """Ranks of one world that one process has started are one job, whatever port one of them was told; others stay apart."""
    # Ports of its own: whoever runs the same test beside this one has stand-ins as well.
    first = find_free_port()
    world = PLAIN | {"WORLD_SIZE": "3", "MASTER_PORT": str(first)}
    rank0, rank1 = (stand.child(f"rank{r}", "torch", **world, RANK=str(r)) for r in range(2))
    stale = stand.child("rank2", "torch", **world | {"MASTER_PORT": str(first + 1)}, RANK="2")
    starter = stand.start("starter", start=(rank0, rank1, stale))
    stand.start("alone", "torch", **world | {"MASTER_PORT": str(first + 2)}, RANK="2")
    wanted = {r: stand.pid(f"rank{r}") for r in range(3)}
    together = only(RankFinder().find(root=starter.pid))
    assert {r.rank: r.pid for r in together.ranks} == wanted
    assert {r.rank: r.meeting_port for r in together.ranks} == {0: first, 1: first, 2: first + 1}
    # Without a root there may be others' jobs between them: names alone decide.
    everywhere = pids(RankFinder().find())
    names = [f"{node_name()}:{first + more}" for more in range(3)]
    assert [sorted(everywhere[name]) for name in names] == [[0, 1], [2], [2]]


@pytest.mark.parametrize("ticks", [0, 1])
def test_beat_of_another_start_is_ignored(stand: Stand, ticks: int) -> None:
    """A beat left by an earlier process with this pid says nothing; one of this process gives it its rank."""
    job = stand.start("plain", "torch")
    beat = make_beat(job.pid, 5)
    beats: Mapping[int, Beat] = {job.pid: Beat(1, beat.pid, beat.start_ticks + ticks, 1, 1, rank=5, initialized=True)}
    assert list(pids(RankFinder().find(job.pid, beats)).values()) == ([] if ticks else [{5: job.pid}])


def test_initialized_rank_is_believed_over_the_environment(stand: Stand) -> None:
    """A program that numbers its ranks itself is known by what it told torch."""
    job = stand.start("own", "torch", RANK="0", **PLAIN)
    assert pids(RankFinder().find(job.pid, {job.pid: make_beat(job.pid, 4, world_size=8)})) == {HERE: {4: job.pid}}
    assert pids(RankFinder().find(job.pid, {job.pid: make_beat(job.pid, 4, initialized=False)})) == {HERE: {0: job.pid}}


def test_mpi_processes_need_torch(stand: Stand) -> None:
    """An MPI program is a rank only if it has torch, and its launcher is known without living here."""
    env = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "3"}
    solver, trainer = stand.start("solver", **env), stand.start("trainer", "torch", **env)
    assert pids(RankFinder().find(solver.pid)) == {}
    assert only(RankFinder().find(trainer.pid)).job.launcher == "mpirun"
    assert only(RankFinder().find(trainer.pid)).job.world_size == 2
