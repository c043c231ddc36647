"""A capture: everything seen of a job at one moment. The one input of the diagnosis."""

from __future__ import annotations

import msgspec

from hangwatch.model.collectives import DEFAULT_GROUP, FlightRecord, GroupProgress
from hangwatch.model.devices import NodeFacts
from hangwatch.model.processes import ProcessSample
from hangwatch.model.serving import EngineState
from hangwatch.model.stacks import StackSample, TaskStack
from hangwatch.model.telemetry import TrainingSeries


class Gap(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that could not be seen: which source, of which rank (None: of the node), why, and the repair."""

    source: str
    reason: str
    rank: int | None = None
    hint: str = ""

    def __str__(self) -> str:
        """One line for people."""
        whose = f" of rank {self.rank}" if self.rank is not None else ""
        return f"{self.source}{whose}: {self.reason}" + (f" ({self.hint})" if self.hint else "")


class Job(msgspec.Struct, frozen=True, omit_defaults=True):
    """The job the ranks belong to. ``launcher`` is torchrun, deepspeed, accelerate, mpirun, srun or plain.

    ``role``: what its own ranks do, ``trainer``, for jobs with processes of other worlds: each of these has a name.
    """

    id: str
    world_size: int | None = None
    nodes: tuple[str, ...] = ()
    launcher: str = "plain"
    command: str = ""
    role: str = ""


class RankIdentity(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which process a rank is. ``start_time`` (seconds since the epoch) guards against reused pids.

    ``meeting_port``: the port at which it meets the others (``MASTER_PORT``, else that of the store in which its world has met).
    The host may go by several names.
    ``supervisor``: the process of torchrun's agent that started it, and may start it anew when it ends:
    ``restart`` times it has, ``max_restarts`` times at the most it does.
    ``rank`` is its number in the job (``model.numbers``). One that is of another world than the job's own has the name of that,
    ``world``, and its rank there, None for a process that is in no world.
    ``title``: what it calls itself, ``VLLM::Worker_TP0`` or ``ray::Trainer``, empty where it has no such title.
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
        """What a process of another world than the job's own is called, ``engine/0``; empty for the job's own ranks."""
        return self.world if self.world_rank is None else f"{self.world}/{self.world_rank}"

    @property
    def worldless(self) -> bool:
        """Whether it is in no world at all."""
        return bool(self.world) and self.world_rank is None

    title: str = ""


class RankCapture(msgspec.Struct, frozen=True, omit_defaults=True):
    """One rank: its process and stack sampled two or three times, its flight record, its last beat's progress.

    ``processes`` and ``stacks`` are in order of time and need not be of equal length (a stack may fail). ``progress``
    was read *after* the flight record and the samples: an operation that has completed since is not in flight.
    ``beat_age_s`` is None without a probe. ``groups_created`` counts the process groups it has begun to create.
    ``log_error`` is the exception that ended the program, ``thread_error`` those that ended threads, a line each
    (the last is the newest), ``handled_error`` the one that the main thread is handling: where it was raised, and what;
    ``thread_handled_error`` those that other threads are handling, as ``thread_error``.
    ``tasks``: its event loops' coroutines that wait, while nothing moves; ``task_error``: tasks of theirs that failed, as
    ``thread_error``.
    ``unrecorded``: it has groups whose operations no recorder shows.
    ``ended``: its program has ended by itself, by ``log_error`` or without an exception; False where that is not known.
    ``native``: all its threads with their native frames, where the user has asked for them (``--native-stacks``).
    ``serves``: connections of processes on other nodes of which it has the other end, each as their end and its own
    (``HOST:PORT HOST:PORT``); only in what one agent answers another.
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

    @property
    def rank(self) -> int:
        """The global rank."""
        return self.identity.rank

    @property
    def world_progress(self) -> tuple[GroupProgress, ...]:
        """How far it is in the default group, for each backend, as far as these are the numbers of collectives alone."""
        return tuple(p for p in self.progress or () if p.group.description == DEFAULT_GROUP and not p.mixed)

    @property
    def sample(self) -> ProcessSample | None:
        """Its last process sample, None where there is none."""
        return self.processes[-1] if self.processes else None


class SilentNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node that is lost: its agent has been silent for ``silent_s`` seconds, and its host does not answer at ``address``.

    ``answered_before``: it did answer while its agent was there, so that this says something.
    """

    node: str
    ranks: tuple[int, ...]
    silent_s: float
    address: str = ""
    answered_before: bool = False


class Capture(msgspec.Struct, frozen=True):
    """All ranks of one job that could be seen, and what could not. ``at_ns``: wall clock at its end.

    Ranks that were there and are gone are still in ``ranks``, with a last process sample of state ``gone``; ranks that
    never appeared are absent (compare ``job.world_size``). ``nodes``: what the nodes say of their hardware, where they were
    asked; empty where nothing called for it. ``training`` is what training has said of itself; it is there where the capture
    was taken for its sake, because of a silent failure. ``silent``: nodes that are lost; their ranks
    are in ``ranks``, as they were known last. ``engine``: the serving engine that the capture was taken for, because nothing
    came out of it; its processes that are no ranks are in ``ranks`` too.
    """

    job: Job
    at_ns: int
    ranks: tuple[RankCapture, ...]
    gaps: tuple[Gap, ...] = ()
    nodes: tuple[NodeFacts, ...] = ()
    training: TrainingSeries | None = None
    silent: tuple[SilentNode, ...] = ()
    engine: EngineState | None = None
