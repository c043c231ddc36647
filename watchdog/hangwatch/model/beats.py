"""The beat: what a probed rank writes every half second, and the names of the files it keeps in the run directory.

The probe runs in the rank's own interpreter and imports nothing of ours, so this is the reading side of the format;
``hangwatch/probe/beat.py`` is the writing side, and a test holds the two together.
"""

from __future__ import annotations

import msgspec

BEAT_VERSION = 1
BEAT_PERIOD_S = 0.5


class BeatGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """One process group in the rank's own view. ``pg_id`` is process-local and keys the recorder's status; ``address`` is that of
    its object, by which a stack that was read from outside has it.

    The rest is there of a group that torch's ``new_group`` did not make, whose members may be no ranks of this job: ``place``
    is this process's own rank in it, of ``size``; ``store`` where its members met, empty where that cannot be told; ``foreign``
    says that ``ranks`` are no ranks of the job, but numbers of the group's own. ``outside`` is not written by the probe: places
    that no rank is known to have, found by ``sources.beats.worlds``.
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
    """A coroutine that waits: the name of its task, and its calls as function, file and line, the deepest first."""

    name: str
    frames: tuple[tuple[str, str, int], ...]


class BeatTelemetry(msgspec.Struct, frozen=True, omit_defaults=True):
    """What training says, as the beat carries it: undecoded, so that a surprise in it is no broken beat.

    ``steps`` are the last steps of each source, ``model.telemetry.LoggedStep`` with a running number ``count``; ``setup`` is a
    ``TrainingSetup``, ``reached`` the step the program is at.
    """

    reached: int | None = None
    setup: msgspec.Raw = msgspec.Raw(b"{}")
    steps: msgspec.Raw = msgspec.Raw(b"[]")


class Beat(msgspec.Struct, frozen=True, omit_defaults=True):
    """One beat of one rank, file ``RUN_DIR/ranks/PID.beat`` (JSON, replaced whole).

    ``counter`` grows by one a beat; ``at_ns`` is the wall clock; ``rank`` is None until the process knows it.
    ``initialized`` says whether a default process group exists now, ``alone`` that there is none because this process
    trains by itself, as rank 0 of 1; ``groups_created`` is torch's own count of groups this process has begun to create (it
    names the next one). ``failure`` is the uncaught exception that ended the program while its process lives on: where it
    was raised, and what; ``thread_failure`` those that ended threads, the last few of them, a line each with the thread's
    name; ``handled`` the one that the main thread is handling while nothing moves, ``thread_handled`` those that others
    are, as ``thread_failure``; ``tasks`` where the coroutines of event loops wait then, and ``task_failure`` those that
    failed, of which nobody has asked, a line each. ``ended`` is set in the last beat of a program that ends by itself, by
    ``failure`` if there is one; a process that was killed, or left by ``os._exit``, has none. ``raised``: what ``--on-hang
    raise`` has raised has reached the main thread. ``unmoved_s`` of a group is for how long neither of its numbers has
    changed. ``server`` is the path of torch's worker server socket, ``control`` that of the probe's own; either is None
    where it could not be started, and ``problems`` says why. ``telemetry`` is what training says of itself, None where it
    has said nothing. ``store`` is where the ranks of its world met, empty where that cannot be told: processes of one store
    are of one world. ``number`` and ``host`` are not written by the probe (``sources.beats.worlds``): the number of a
    process that is of another world than its job's own (``model.numbers``), and a process of that one.
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
        """Seconds since it was written, by the wall clock ``now_ns``; never negative."""
        return max(0.0, (now_ns - self.at_ns) / 1e9)
