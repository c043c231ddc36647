"""Which process group a flight-recorder entry or status belongs to, and who its members are. Pure.

May import hangwatch.model and the standard library. The dump keys its status by the process-local ``pg_id`` and names
groups by a counter. Gloo's ``pg_config`` is wrong (one nameless entry, overwritten by every group). The beat's groups
come from ``torch.distributed`` itself and take precedence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from hangwatch.model.beats import BeatGroup
from hangwatch.model.collectives import DEFAULT_GROUP, Group

_UNDEFINED = "undefined"
_RANKS = re.compile(r"\s*\[\s*(\d{1,7}(?:\s*,\s*\d{1,7})*)?\s*,?\s*\]\s*", re.ASCII)
_MAX_RANKS_CHARS = 1 << 20


def parse_ranks(value: object) -> tuple[int, ...]:
    """Return the global ranks of ``pg_config[..].ranks``, the text ``"[0, 2]"`` or a list; empty for anything else."""
    if isinstance(value, str):
        match = _RANKS.fullmatch(value) if len(value) <= _MAX_RANKS_CHARS else None
        return tuple(int(part) for part in match[1].split(",")) if match and match[1] else ()
    if isinstance(value, (list, tuple)) and all(type(rank) is int and rank >= 0 for rank in value):
        return tuple(value)
    return ()


def parse_config(value: object) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return description and global ranks by group name, from a dump's ``pg_config``.

    Nameless groups (Gloo's) are left out. NCCL's config has the groups that the rank belongs to and has used
    (``record_pg_ranks``), by name from dump version 2.0 on.
    """
    config: dict[str, tuple[str, tuple[int, ...]]] = {}
    for key, entry in value.items() if isinstance(value, Mapping) else ():
        if isinstance(entry, Mapping):
            name = str(entry.get("name", key))
            if name:
                config[name] = (str(entry.get("desc", "")), parse_ranks(entry.get("ranks")))
    return config


class GroupTable:
    """The groups of one rank, found by ``pg_id`` and name."""

    def __init__(
        self, config: Mapping[str, tuple[str, tuple[int, ...]]], beats: Sequence[BeatGroup], world_size: int | None
    ) -> None:
        self._config = config
        self._by_id = {group.pg_id: group for group in beats if group.pg_id is not None}
        self._by_name = {group.name: group for group in beats}
        self._world_size = world_size
        self._known: dict[tuple[int | None, str, str], Group] = {}

    def find(self, pg_id: int | None, name: str, description: str = "") -> Group:
        """Return the group of an entry; its ranks are empty if its members are not known."""
        key = (pg_id, name, description)
        group = self._known.get(key)
        if group is None:
            group = self._known[key] = self._make(pg_id, name, description)
        return group

    def _make(self, pg_id: int | None, name: str, description: str) -> Group:
        beat = None if pg_id is None else self._by_id.get(pg_id)
        if beat is None or (name and beat.name != name):
            beat = self._by_name.get(name)
        configured, ranks = self._config.get(name, ("", ())) if name else ("", ())
        if beat is not None:
            name, ranks = name or beat.name, beat.ranks or (() if beat.outside else ranks)
        descriptions = [beat.description if beat else "", description, configured]
        description = next((text for text in descriptions if text and text != _UNDEFINED), description)
        if not ranks and description == DEFAULT_GROUP and self._world_size:
            ranks = tuple(range(self._world_size))
        return Group(name, ranks, description, beat.outside if beat is not None else ())

    def match_status(self, status_ids: Iterable[int], entries: Mapping[int, Group]) -> dict[int, Group]:
        """Return the group of each ``pg_id`` of the status: from the entries, else the beat, else by order of creation.

        Both ids and names count up as groups are made. If there are as many names as ids, and everything known
        agrees, the nth id is the nth name.
        """
        ids = sorted(status_ids)
        found = {pg_id: group for pg_id, group in entries.items() if pg_id in ids}
        for pg_id in ids:
            if pg_id not in found and pg_id in self._by_id:
                found[pg_id] = self.find(pg_id, self._by_id[pg_id].name)
        names = sorted((name for name in self._config if name.isdigit()), key=int)
        if len(found) < len(ids) == len(names) == len(self._config):
            ordered = dict(zip(ids, names, strict=True))
            if all(ordered[pg_id] == group.name for pg_id, group in found.items()):
                for pg_id, name in ordered.items():
                    found.setdefault(pg_id, self.find(None, name, self._config[name][0]))
        return found
