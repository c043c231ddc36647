"""The beat: what a probed rank writes every half second, and the names of the files it keeps in the run directory.

The probe runs in the rank's own interpreter and imports nothing of ours, so this is the reading side of the format;
``hangwatch/probe/beat.py`` is the writing side, and a test holds the two together.
"""

from __future__ import annotations

import msgspec

BEAT_VERSION = 1
BEAT_PERIOD_S = 0.5


class BeatGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """One process group in the rank's own view.

    - ``pg_id``: process-local; the key of the recorder's status.
    - ``address``: of the group's object; a stack that was read from outside shows it.
    - ``unmoved_s``: for how many seconds neither of its numbers has changed.

    The following are set only for a group that torch's ``new_group`` did not make, whose members may be no ranks of
    this job.

    - ``place``: this process's own rank in it, of ``size``.
    - ``store``: where its members met; empty if not known.
    - ``foreign``: ``ranks`` are numbers of the group's own, not ranks of the job.
    - ``outside``: places that no known rank has; found by ``sources.beats.worlds``, not written by the probe.
    """

    name: str
    ranks: tuple[int, ...]
    pg_id: int | None = None
    description: str = ""
    backend: str = ""
    enqueued: int = -1
    started: int = -1
    completed: int = -1
    unmoved_s: float = 0.0
    place: int | None = None
    size: int | None = None
    store: str = ""
    foreign: bool = False
    outside: tuple[int, ...] = ()
    address: int = 0


class BeatTask(msgspec.Struct, frozen=True):
    """A waiting coroutine: its task's name, and its calls as function, file and line, deepest first."""

    name: str
    frames: tuple[tuple[str, str, int], ...]


class BeatTelemetry(msgspec.Struct, frozen=True, omit_defaults=True):
    """What training says, as the beat carries it: undecoded, so that unexpected content does not break the beat.

    ``steps``: the last steps of each source, ``model.telemetry.LoggedStep`` with a running number ``count``.
    ``setup``: a ``TrainingSetup``. ``reached``: the step that the program is at.
    """

    reached: int | None = None
    setup: msgspec.Raw = msgspec.Raw(b"{}")
    steps: msgspec.Raw = msgspec.Raw(b"[]")


class Beat(msgspec.Struct, frozen=True, omit_defaults=True):
    """One beat of one rank, file ``RUN_DIR/ranks/PID.beat`` (JSON, replaced whole).

    - ``counter``: grows by one per beat. ``at_ns``: wall clock. ``rank``: None until the process knows it.
    - ``initialized``: a default process group exists now. ``alone``: there is none, because this process trains by
      itself, as rank 0 of 1.
    - ``groups_created``: torch's own count of groups that this process has begun to create (it names the next one).
    - ``failure``: the uncaught exception that ended the program while its process lives on: where it was raised, and
      what.
    - ``thread_failure``: the last few exceptions that ended threads, one line each with the thread's name.
    - ``handled``: the exception that the main thread handles while nothing moves. ``thread_handled``: those that
      other threads handle, in the form of ``thread_failure``.
    - ``tasks``: where coroutines wait while nothing moves. ``task_failure``: failed tasks that nobody has asked for,
      one line each.
    - ``ended``: set in the last beat of a program that ends by itself, because of ``failure`` if there is one. A
      process that was killed, or left by ``os._exit``, never sets it.
    - ``raised``: the exception of ``--on-hang raise`` has reached the main thread.
    - ``server``: the path of torch's worker server socket. ``control``: of the probe's own. Either is None if it
      could not be started; ``problems`` says why.
    - ``telemetry``: what training says of itself; None if nothing.
    - ``store``: where the ranks of its world met, empty if not known. Processes of one store are of one world.
    - ``number``, ``host``: not written by the probe but by ``sources.beats.worlds``, for a process of another world
      than its job's own: its number in the job (``model.numbers``), and a process of the job's own world.
    """

    version: int
    pid: int
    start_ticks: int
    counter: int
    at_ns: int
    rank: int | None = None
    world_size: int | None = None
    local_rank: int | None = None
    initialized: bool = False
    alone: bool = False
    groups_created: int | None = None
    failure: tuple[str, ...] = ()
    thread_failure: tuple[str, ...] = ()
    handled: tuple[str, ...] = ()
    thread_handled: tuple[str, ...] = ()
    tasks: tuple[BeatTask, ...] = ()
    task_failure: tuple[str, ...] = ()
    ended: bool = False
    raised: bool = False
    torch: str = ""
    python: str = ""
    groups: tuple[BeatGroup, ...] = ()
    server: str | None = None
    control: str | None = None
    problems: tuple[str, ...] = ()
    telemetry: BeatTelemetry | None = None
    store: str = ""
    number: int | None = None
    host: int | None = None

    def age_s(self, now_ns: int) -> float:
        """Return the seconds since it was written, by the wall clock ``now_ns``; never negative."""
        return max(0.0, (now_ns - self.at_ns) / 1e9)
