"""The process groups of this rank, and how far it is in each. Standard library; torch only as modules handed in.

Membership is torch's own Python record (``distributed_c10d._world``, torch 2.4 to 2.13): Gloo's in the recorder is
wrong. Progress is the recorder's, keyed by a process-local ``pg_id``. NCCL's backend object tells its own (``uid``).
Gloo's is learned from the recorder's entries, which have id and name. Nothing unknown is guessed: names are reused
after ``destroy_process_group``, so an id belongs to a group only if it is newer than those of earlier groups of that
name, and if the group's own sequence number agrees.
"""

from __future__ import annotations

import json
import re
import time
import weakref
from typing import Any, Callable, Tuple

from .completion import Completion
from .recorder import Progress, Recorder, Status, parse_names

#: Reading a full ring (940 KB) costs 20 to 40 ms of CPU time: after it 7.5 s without, after a small one next to nothing.
_PAUSE_S_PER_BYTE = 8e-6


#: The names that torch's ``new_group`` gives: a count, or a hash of the members.
_COUNTED = re.compile(r"[0-9]+|[0-9a-f]{40}")


#: A row up to its ``unmoved_s``, and since when (monotonic) it has not moved.
_Row = Tuple[str, float]


class _Group:
    """One live group. ``devices``: by a recorder's backend, a device type that it serves in this group."""

    __slots__ = ("devices", "floors", "head", "ids", "label", "moves", "name", "reference", "since", "whole")

    def __init__(
        self, group: Any, name: str, ranks: list[int], description: str, config: str, origin: str = ""
    ) -> None:
        self.reference = weakref.ref(group)  # never keep a group of the program alive
        self.name = name
        self.whole = bool(ranks)
        self.devices: dict[str, str] = {}
        for part in reversed(config.split(",")):
            device, _, backend = part.strip().partition(":")
            self.devices[backend or device] = device if backend else "cpu"
        self.label = ",".join(sorted(self.devices))
        self.head = '{"name":%s,"ranks":%s,"description":%s,"address":%d%s' % (
            json.dumps(name),
            json.dumps(ranks, separators=(",", ":")),
            json.dumps(description),
            id(group),
            origin,
        )
        self.ids: dict[str, int] = {}
        self.floors: dict[str, int] = {}
        self.moves: dict[str, tuple[int, int, float]] = {}
        self.since = time.monotonic()


class GroupTable:
    """Keeps the groups and their ids from beat to beat. ``read_entries``: returns Gloo's JSON dump."""

    def __init__(self, c10d: Any, torch: Any, recorders: list[Recorder], read_entries: Callable[[], bytes]) -> None:
        self._c10d = c10d
        self._torch = torch
        self._recorders = recorders
        self._read_entries = read_entries
        self._mark: tuple[Any, ...] = ()
        self._groups: dict[int, _Group] = {}
        self._leaving: list[_Group] = []
        self._names: dict[int, str] = {}
        self._newest: dict[str, int] = {}
        self._floors: dict[tuple[str, str], int] = {}
        self._completion = Completion()
        self._asked: dict[int, int] = {}
        self._known_names: set[str] = set()
        self._entries_at = 0.0
        self._postponed = False
        self._dumps: list[bytes] = []
        self._rows: list[_Row] = []
        #: When something has last moved in a group, or this process began (monotonic seconds).
        self.moved_at = self._begun_at = time.monotonic()
        #: For how long nothing has moved in any group, or there has been no group.
        self.unmoved_s = 0.0
        self.rank: int | None = None
        self.world_size: int | None = None
        self.initialized = False
        #: How many numbered groups this process has begun to create; ranks with different counts wait for different groups.
        self.groups_created: int | None = None
        #: Where the ranks of the world met; empty if not known.
        self.store = ""
        #: Gloo records without names, as it does under TORCH_DISTRIBUTED_DEBUG=DETAIL: progress cannot be told apart.
        self.nameless = False

    @property
    def uses_nccl(self) -> bool:
        """True if NCCL serves a group."""
        return any("nccl" in group.devices for group in self._groups.values())

    def render(self) -> list[str]:
        """Return one JSON object per group and recorder, as ``model.beats.BeatGroup``; two for a group that uses both."""
        changed = self._update_membership()
        now = time.monotonic()
        dumps = [recorder.read_status() for recorder in self._recorders]
        if changed or dumps != self._dumps or self._postponed or self._completion.is_due(now):
            self._dumps = dumps
            pairs = zip(self._recorders, dumps)  # noqa: B905 -- strict= is newer than a rank's Python may be
            statuses = {recorder.backend: recorder.parse_status(dump) for recorder, dump in pairs}
            if "gloo" in statuses:
                self._consult_entries(statuses["gloo"].progress, now)
            self._rows = [row for group in self._groups.values() for row in self._render_group(group, statuses, now)]
            left = [row for group in self._leaving for row in self._render_leaving(group, statuses, now)]
            self._rows += left
            self.initialized = self._c10d._world.default_pg is not None or bool(left)
        self.moved_at = max((since for _, since in self._rows), default=self._begun_at)
        self.unmoved_s = now - self.moved_at
        # The usual case in a long step: nothing has moved, and only the time since then changes.
        return ["%s%.3f}" % (row, now - since) for row, since in self._rows]

    def _update_membership(self) -> bool:
        """True if the groups have changed since the last call; cheap if not."""
        world = self._c10d._world
        names = world.pg_names
        # One C call over the live dict: no other thread can change it in between.
        mark = (tuple(map(id, names)), world.group_count, id(world.default_pg))
        if mark == self._mark and all(g.whole and g.reference() is not None for g in self._groups.values()):
            return False
        self._mark = mark
        before, self._groups = self._groups, {}
        for group in list(names):
            known = before.get(id(group))
            if known is not None and known.whole and known.reference() is group:
                self._groups[id(group)] = known
                del before[id(group)]
        for gone in before.values():
            for backend, pg_id in gone.ids.items():
                key = (backend, gone.name)
                self._floors[key] = max(pg_id, self._floors.get(key, -1))
        # torch forgets a group before its destructor, in which Gloo waits for whatever the group still has in flight.
        self._leaving = [] if world.default_pg is not None else [*self._leaving, *before.values()]
        for group, name in list(names.items()):
            if id(group) not in self._groups:
                self._groups[id(group)] = self._describe(group, str(name))
        default = world.default_pg
        count = getattr(world, "group_count", None)
        self.groups_created = count if isinstance(count, int) else None
        if default is not None:
            self.rank, self.world_size = int(default.rank()), int(default.size())
            self.store = _meeting_place(world, default)
        return True

    def _describe(self, group: Any, name: str) -> _Group:
        world = self._c10d._world
        members = dict(world.pg_group_ranks.get(group) or {})
        config = str(world.pg_backend_config.get(group) or "")
        description = str(getattr(group, "group_desc", "") or "")
        self._known_names.add(name)
        origin = self._origin(group, name, members) if members and group is not world.default_pg else ""
        found = _Group(group, name, sorted(members, key=lambda rank: members[rank]), description, config, origin)
        for recorder in self._recorders:
            found.floors[recorder.backend] = self._floors.get((recorder.backend, name), -1)
        if "nccl" in found.devices:
            uid = getattr(self._backend(group, found.devices["nccl"]), "uid", None)
            if isinstance(uid, int):
                found.ids["nccl"] = uid
        return found

    def _origin(self, group: Any, name: str, members: dict[int, int]) -> str:
        """Return what is known of a group that may reach beyond the world, as JSON; empty if ``new_group`` made it.

        A library may make a group with processes of other jobs, by a rendezvous of its own
        (``_new_process_group_helper``). Its members have numbers of their own, which torch's record does not say;
        that they met elsewhere tells it.
        """
        world = self._c10d._world
        default = world.default_pg
        try:
            place, size = int(group.rank()), int(group.size())
            met, home = _meeting_place(world, group), _meeting_place(world, default) if default is not None else ""
            apart = bool(met and home) and met != home
            renumbered = default is None or members.get(int(default.rank())) != place or len(members) != size
        except Exception:
            return ""
        if not (apart or renumbered) and _COUNTED.fullmatch(name):
            return ""
        fields = {"place": place, "size": size, "store": met, "foreign": apart or renumbered}
        return "," + json.dumps(fields, separators=(",", ":"))[1:-1]

    def _backend(self, group: Any, device: str) -> Any:
        try:
            backend = group._get_backend(self._torch.device(device))
            return getattr(backend, "wrapped_pg", backend)  # TORCH_DISTRIBUTED_DEBUG=DETAIL wraps it
        except Exception:
            return None

    def _consult_entries(self, status: dict[int, Progress], now: float) -> None:
        """Read the entries if an id has no name, or a number may be wrong; rarely, because there are many."""
        kept = (*self._groups.values(), *self._leaving)
        live = {group.ids["gloo"] for group in kept if "gloo" in group.ids}
        doubtful = self._completion.wants_entries({i: status[i] for i in live if i in status}, now)
        # An id whose entries were overwritten before we saw them can only be named by new ones.
        missing = [pg_id for pg_id in status if pg_id not in self._names]
        unknown = [pg_id for pg_id in missing if self._asked.get(pg_id) != status[pg_id].enqueued]
        self._postponed = (doubtful or bool(unknown)) and now < self._entries_at
        if self._postponed or not (doubtful or unknown):
            return
        dump = self._read_entries()
        self._entries_at = now + _PAUSE_S_PER_BYTE * len(dump)
        self._completion.settle(dump, now)
        for pg_id, name in parse_names(dump, unknown).items():
            self._names[pg_id] = name
            self._newest[name] = max(pg_id, self._newest.get(name, -1))
        self._asked.update((pg_id, status[pg_id].enqueued) for pg_id in unknown)
        self.nameless = "" in self._newest and self._hides_names()

    def _find_id(self, group: _Group, backend: str, status: dict[int, Progress]) -> int | None:
        """Return the group's ``pg_id`` in that recorder, if it is known and has recorded anything; else None."""
        known = group.ids.get(backend)
        newest = self._newest.get(group.name, -1) if backend == "gloo" else -1
        candidate = newest in status and newest != known and newest > group.floors[backend]
        if candidate and self._sequence(group, backend) >= status[newest].enqueued:
            group.ids[backend] = known = newest
            self._postponed = True  # from the next beat on its numbers are checked, whether they move or not
        return known if known in status else None

    def _sequence(self, group: _Group, backend: str) -> int:
        """Return the backend's own count of operations, which is never behind what the recorder had a moment before."""
        live = group.reference()
        try:
            return int(self._backend(live, group.devices[backend])._get_sequence_number_for_group())
        except Exception:
            return -1 if live is None else 1 << 62  # this torch does not tell: then it passes

    def _render_group(self, group: _Group, statuses: dict[str, Status], now: float) -> list[_Row]:
        rows: list[_Row] = []
        for backend in group.devices:
            status = statuses.get(backend)
            pg_id = self._find_id(group, backend, status.progress) if status is not None else None
            if status is not None and pg_id is not None:
                progress = status.progress[pg_id]
                if backend == "gloo":
                    progress = self._completion.correct(pg_id, progress)
                rows.append(self._render_row(group, backend, pg_id, progress, now))
        if rows:
            return rows
        unused = all(self._is_unused(group, backend, statuses.get(backend)) for backend in group.devices)
        progress = Progress(0, -1, 0) if unused else Progress(-1, -1, -1)
        return [self._render_row(group, group.label, None, progress, now)]

    def _render_leaving(self, group: _Group, statuses: dict[str, Status], now: float) -> list[_Row]:
        """Return the rows of a group that torch has forgotten, as long as it has an operation in flight."""
        pg_id, status = group.ids.get("gloo"), statuses.get("gloo")
        if pg_id is None or status is None or pg_id not in status.progress:
            return []
        progress = self._completion.correct(pg_id, status.progress[pg_id])
        in_flight = progress.enqueued > max(progress.completed, 0)
        return [self._render_row(group, "gloo", pg_id, progress, now)] if in_flight else []

    def _is_unused(self, group: _Group, backend: str, status: Status | None) -> bool:
        """True if the group certainly has no recorded operation.

        That is so if the recorder is on, and every id in it is known to be another group's.
        """
        if status is None or not status.recording:
            return False
        if backend == "nccl":
            return "nccl" in group.ids
        newest = self._newest.get(group.name, -1)
        if newest > group.floors[backend] and self._sequence(group, backend) != 0:
            return False
        names = {self._names.get(pg_id) for pg_id in status.progress}
        # A backend that the program created itself is in no list of torch's, and has no name.
        return names <= (self._known_names if self._hides_names() else self._known_names | {""})

    def _hides_names(self) -> bool:
        """True if torch wraps its groups, whose operations are then recorded without names."""
        try:
            return bool(self._c10d.get_debug_level() == self._c10d.DebugLevel.DETAIL)
        except Exception:
            return True

    def _render_row(self, group: _Group, backend: str, pg_id: int | None, progress: Progress, now: float) -> _Row:
        moved = group.moves.get(backend)
        if moved is None or moved[:2] != (progress.enqueued, progress.completed):
            moved = (progress.enqueued, progress.completed, now if moved is not None else group.since)
            group.moves[backend] = moved
        row = '%s,"pg_id":%s,"backend":%s,"enqueued":%d,"started":%d,"completed":%d,"unmoved_s":' % (
            group.head,
            "null" if pg_id is None else pg_id,
            json.dumps(backend),
            progress.enqueued,
            progress.started,
            progress.completed,
        )
        return row, moved[2]


def _meeting_place(world: Any, group: Any) -> str:
    """Return the store in which a group's members met, by its object alone; empty if that does not tell."""
    try:
        store = world.pg_map[group][1]
        for _ in range(16):
            store = getattr(store, "underlying_store", store)
        host, port, path = (getattr(store, what, None) for what in ("host", "port", "path"))
    except Exception:
        return ""
    if isinstance(host, str) and isinstance(port, int):
        return "tcp://%s:%d" % (host, port)
    return "file://%s" % path if isinstance(path, str) else ""
