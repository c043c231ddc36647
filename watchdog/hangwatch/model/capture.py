"""A capture: everything seen of a job at one moment. The one input of the diagnosis."""

from __future__ import annotations

import msgspec

from hangwatch.model.collectives import DEFAULT_GROUP, FlightRecord, GroupProgress
from hangwatch.model.devices import NodeFacts
from hangwatch.model.processes import ProcessSample
from hangwatch.model.serving import EngineState
from hangwatch.model.slowness import Slow
from hangwatch.model.stacks import StackSample, TaskStack
from hangwatch.model.telemetry import TrainingSeries


class Gap(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that could not be seen: which source, of which rank (None: of the node), why, and the repair."""

    source: str
    reason: str
    rank: int | None = None
    hint: str = ""

    def __str__(self) -> str:
        """Return one line for people."""
        whose = f" of rank {self.rank}" if self.rank is not None else ""
        return f"{self.source}{whose}: {self.reason}" + (f" ({self.hint})" if self.hint else "")


class Job(msgspec.Struct, frozen=True, omit_defaults=True):
    """The job the ranks belong to. Texts are empty if not known.

    - ``launcher``: torchrun, deepspeed, accelerate, mpirun, srun or plain.
    - ``role``: what its own ranks do, such as ``trainer``; only for jobs with processes of other worlds, which have
      names.
    - ``name``: what its user calls it. ``script``: the program of its ranks, as in their command line. ``user``: who
      runs them.
    - ``slurm_job``: the number of the Slurm job. ``namespace`` and ``pod``: of Kubernetes.
    """

    id: str
    world_size: int | None = None
    nodes: tuple[str, ...] = ()
    launcher: str = "plain"
    command: str = ""
    role: str = ""
    name: str = ""
    script: str = ""
    user: str = ""
    slurm_job: str = ""
    namespace: str = ""
    pod: str = ""


class RankIdentity(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which process a rank is.

    - ``start_time``: seconds since the epoch; tells it from a later process with its pid.
    - ``meeting_port``: the port at which it meets the others (``MASTER_PORT``, else that of its world's store); the
      host may have several names.
    - ``supervisor``: the pid of the torchrun agent that started it, and may restart it: ``restart`` times so far, at
      most ``max_restarts`` times.
    - ``rank``: its number in the job (``model.numbers``).
    - ``world``: the name of its world, if that is not the job's own; ``world_rank``: its rank there, None if it is in
      no world.
    - ``title``: its process title, ``VLLM::Worker_TP0`` or ``ray::Trainer``; empty if it has no such title.
    """

    rank: int
    pid: int
    start_time: float
    node: str = ""
    local_rank: int | None = None
    restart: int = 0
    max_restarts: int = 0
    meeting_port: int | None = None
    supervisor: int | None = None
    world: str = ""
    world_rank: int | None = None

    @property
    def name(self) -> str:
        """Its name in a world other than the job's own, such as ``engine/0``; empty for the job's own ranks."""
        return self.world if self.world_rank is None else f"{self.world}/{self.world_rank}"

    @property
    def worldless(self) -> bool:
        """True if it is in no world at all."""
        return bool(self.world) and self.world_rank is None

    title: str = ""


class RankCapture(msgspec.Struct, frozen=True, omit_defaults=True):
    """One rank: its process and stack sampled two or three times, its flight record, its last beat's progress.

    - ``processes``, ``stacks``: in order of time, not necessarily of equal length (a stack may fail).
    - ``progress``: read *after* the flight record and the samples: an operation that has completed since is not in
      flight.
    - ``beat_age_s``: None without a probe.
    - ``groups_created``: how many process groups it has begun to create.
    - ``log_error``: the exception that ended the program: where it was raised, and what.
    - ``thread_error``: exceptions that ended threads, one line each, the newest last.
    - ``handled_error``: the exception that the main thread handles. ``thread_handled_error``: those that other
      threads handle, one line each.
    - ``tasks``: waiting coroutines of its event loops, while nothing moves. ``task_error``: failed tasks, one line
      each.
    - ``unrecorded``: it has groups whose operations no recorder shows.
    - ``ended``: its program has ended by itself, with ``log_error`` or without an exception; False if not known.
    - ``terminated``: C++ has ended its process (``std::terminate``), as Gloo does if a message does not fit.
    - ``native``: all its threads with native frames, if the user asked for them (``--native-stacks``).
    - ``serves``: connections of processes on other nodes whose other end it has, each as their end and its own
      (``HOST:PORT HOST:PORT``); only in one agent's answer to another.
    """

    identity: RankIdentity
    processes: tuple[ProcessSample, ...] = ()
    stacks: tuple[StackSample, ...] = ()
    flight: FlightRecord | None = None
    progress: tuple[GroupProgress, ...] | None = None
    beat_age_s: float | None = None
    log_error: tuple[str, ...] = ()
    groups_created: int | None = None
    thread_error: tuple[str, ...] = ()
    handled_error: tuple[str, ...] = ()
    thread_handled_error: tuple[str, ...] = ()
    tasks: tuple[TaskStack, ...] = ()
    task_error: tuple[str, ...] = ()
    ended: bool = False
    unrecorded: bool = False
    native: StackSample | None = None
    serves: tuple[str, ...] = ()
    terminated: bool = False

    @property
    def rank(self) -> int:
        """The global rank."""
        return self.identity.rank

    @property
    def world_progress(self) -> tuple[GroupProgress, ...]:
        """Its progress in the default group, one entry a backend, without numbers that count more than collectives."""
        return tuple(p for p in self.progress or () if p.group.description == DEFAULT_GROUP and not p.mixed)

    @property
    def sample(self) -> ProcessSample | None:
        """Its last process sample; None if there is none."""
        return self.processes[-1] if self.processes else None


class SilentNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """A lost node: its agent has been silent for ``silent_s`` seconds, and its host does not answer at ``address``.

    ``answered_before``: it answered while its agent was there, so its silence means something.
    """

    node: str
    ranks: tuple[int, ...]
    silent_s: float
    address: str = ""
    answered_before: bool = False


class Capture(msgspec.Struct, frozen=True):
    """All visible ranks of one job, and what could not be seen.

    - ``at_ns``: wall clock at its end.
    - ``ranks``: ranks that are gone are still there, with a last process sample of state ``gone``; ranks that never
      appeared are not (compare ``job.world_size``).
    - ``nodes``: what the nodes say of their hardware; empty if they were not asked.
    - ``training``: what training has said of itself; only if the capture was taken because of a silent failure.
    - ``silent``: lost nodes; their ranks are in ``ranks`` as last known.
    - ``engine``: the serving engine whose lack of progress caused the capture; its processes that are no ranks are in
      ``ranks`` too.
    - ``failed``: the job has ended, and this is what its ranks left. A rank that failed in a collective is shown
      there: its stack, and that operation in flight.
    - ``slow``: what slows the job down; only if the capture was taken because of it.
    """

    job: Job
    at_ns: int
    ranks: tuple[RankCapture, ...]
    gaps: tuple[Gap, ...] = ()
    nodes: tuple[NodeFacts, ...] = ()
    training: TrainingSeries | None = None
    silent: tuple[SilentNode, ...] = ()
    engine: EngineState | None = None
    failed: bool = False
    slow: Slow | None = None
