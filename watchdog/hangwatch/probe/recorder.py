"""torch's flight recorders, read from inside the process. Standard library; torch only as modules handed in.

There are two, with separate counters: Gloo records into the generic one (``_dump_fr_trace*``, torch >= 2.10), NCCL into
its own (``_dump_nccl_trace*``, CUDA builds; JSON since 2.5), and neither shows the other's operations.
Formats read: FlightRecorder.hpp of torch 2.13.0 (dump version 2.10) and older ones with the same status part.
"""
# Plain os calls: this runs in the rank.
# ruff: noqa: PTH118, PTH120, PTH123

from __future__ import annotations

import json
import os
import pickle
import re
import sys
import threading
from typing import Any, Callable, Iterable, MutableMapping, NamedTuple

BUFFER_ENTRIES = 2000
_NAME_KEY = '"process_group":'
_NEW_NAME, _OLD_NAME = "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"
#: Where torch states the default size of the ring: 2.6 and later, 2.5, 2.4.
_HEADERS = ("FlightRecorder.hpp", "NCCLUtils.hpp", "TraceUtils.h")


class Progress(NamedTuple):
    """Last sequence numbers of one group; 0: none yet. ``started``: -1 if the backend does not record it."""

    enqueued: int
    started: int
    completed: int


class Status(NamedTuple):
    """The status part of one recorder. ``recording``: it is on and has seen a group."""

    recording: bool
    progress: dict[int, Progress]


def parse_version(text: str) -> tuple[int, int]:
    """Return major and minor of a torch version such as ``2.13.0+cpu``; (0, 0) for anything else."""
    found = re.match(r"(\d+)\.(\d+)", str(text))
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)


def set_environment(environment: MutableMapping[str, str], torch: Any) -> None:
    """Turn the recorder on if the user has set nothing and this torch would leave it off.

    Recent versions record 2,000 operations by default, and warn on stderr if the old name is set: then nothing is
    set.
    """
    if _NEW_NAME in environment or _OLD_NAME in environment:
        return
    name, default = _find_default(os.path.dirname(torch.__file__), parse_version(torch.__version__))
    if default <= 0:
        environment[name] = str(BUFFER_ENTRIES)


def _find_default(directory: str, version: tuple[int, int]) -> tuple[str, int]:
    """Return the variable this torch reads first, and the size without it.

    From torch's own header if it has one.
    """
    for header in _HEADERS:
        try:
            with open(os.path.join(directory, "include/torch/csrc/distributed/c10d", header), encoding="utf-8") as file:
                found = re.search(r'getCvarInt\(\s*\{\s*"(TORCH_\w+_BUFFER_SIZE)"[^}]*\},\s*(\d+)', file.read())
        except (OSError, ValueError):
            continue
        if found:
            return found.group(1), int(found.group(2))
    return (_NEW_NAME, BUFFER_ENTRIES) if version >= (2, 10) else (_OLD_NAME, 0)


class Recorder:
    """One of the two recorders. ``backend``: the one that writes to it, ``gloo`` or ``nccl``."""

    def __init__(self, backend: str, status: Callable[..., bytes] | None, dump: Callable[..., bytes]) -> None:
        self.backend = backend
        self._status = status
        self._dump = dump

    def read_status(self) -> bytes:
        """Return the status part, undecoded: takes microseconds, no entries, no device call."""
        # torch 2.4 has no JSON
        return (self._status or self._dump)(includeCollectives=False)

    def parse_status(self, dump: bytes) -> Status:
        """Return progress by process-local ``pg_id``, from what ``read_status`` returned."""
        # The pickle was just made by our own process: nothing in it is foreign.
        found = json.loads(dump) if self._status is not None else pickle.loads(dump)  # noqa: S301
        progress = {int(key): _parse_progress(value) for key, value in (found.get("pg_status") or {}).items()}
        return Status(bool(progress or found.get("pg_config")), progress)

    def read_entries(self) -> bytes:
        """Return the JSON with all entries; holds the GIL for some 25 ms if the ring is full."""
        return self._status() if self._status is not None else b""

    def read_flight(self, only_active: bool) -> bytes:
        """Return the pickle with call sites, as torch's own analyzer reads it; some 20 ms with 2,000 entries."""
        with _InductorShield():
            return self._dump(includeCollectives=True, includeStackTraces=True, onlyActive=only_active)


def find_recorders(bindings: Any) -> list[Recorder]:
    """Return the recorders this torch has (``torch._C._distributed_c10d``); NCCL's first."""
    found = []
    for backend, stem in (("nccl", "_dump_nccl_trace"), ("gloo", "_dump_fr_trace")):
        dump = getattr(bindings, stem, None)
        if dump is not None:
            found.append(Recorder(backend, getattr(bindings, stem + "_json", None), dump))
    return found


def parse_names(dump: bytes, ids: Iterable[int]) -> dict[int, str]:
    """Return the group names of these ``pg_id`` values from a JSON dump's entries; ids without an entry are left out."""
    names = {}
    for pg_id in ids:
        key = b'"pg_id":%d,' % pg_id
        start = dump.find(key)
        if start < 0:
            continue
        excerpt = dump[start + len(key) : start + 8192].decode("utf-8", "replace")
        if not excerpt.startswith(_NAME_KEY):  # torch sorts its keys; decode the whole if these two are not together
            return {e["pg_id"]: str(e["process_group"][0]) for e in json.loads(dump).get("entries", ())}
        names[pg_id] = str(json.JSONDecoder().raw_decode(excerpt[len(_NAME_KEY) :])[0][0])
    return names


def _parse_progress(status: dict[str, Any]) -> Progress:
    enqueued, started, completed = (int(status.get("last_%s_collective" % w, -1)) for w in Progress._fields)
    return Progress(max(enqueued, 0), started, max(completed, 0))


class _InductorShield:
    """Keeps torch's symbolizer from importing ``torch._inductor`` into the user's process while call sites are read.

    ``combined_traceback.cpp`` asks ``hasattr(torch, "_inductor")``, and torch's lazy ``__getattr__`` answers by
    importing it: a second or more, in steps of up to 300 ms with the GIL held. For our thread the attribute is there and empty;
    for any other thread that meets it in these milliseconds it is the real module.
    """

    def __enter__(self) -> None:
        self._thread = threading.get_ident()
        self._torch = sys.modules.get("torch")
        if self._torch is not None and "torch._inductor" not in sys.modules:
            self._torch.__dict__.setdefault("_inductor", self)

    def __getattr__(self, name: str) -> Any:
        if threading.get_ident() == self.__dict__.get("_thread"):
            raise AttributeError(name)
        import importlib

        return getattr(importlib.import_module("torch._inductor"), name)

    def __exit__(self, *_: object) -> None:
        if self._torch is not None and self._torch.__dict__.get("_inductor") is self:
            del self._torch.__dict__["_inductor"]
