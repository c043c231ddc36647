"""The last check before anything of a job is kept or reported: values of its secret variables, wherever they occur.

May import the model, the sources and msgspec. Secrets known by their form or name were removed where they were read
(``sources.redaction``); a password that looks like any word is known only from the environment of its rank.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable
from functools import cache, lru_cache
from typing import TypeVar

from msgspec import inspect

from hangwatch.model.capture import Capture, Gap, Job, RankIdentity, SilentNode
from hangwatch.model.collectives import Completion, FlightRecord, Group, Operation
from hangwatch.model.devices import (
    Absence,
    Communicator,
    CommunicatorRank,
    Gpu,
    KernelEvent,
    NodeFacts,
    Port,
    RasProblem,
    RasReport,
)
from hangwatch.model.processes import ChildProcess, MutexWait, ProcessSample
from hangwatch.model.stacks import Block, Frame, Iterations, Position
from hangwatch.model.telemetry import DeepSpeedSettings, LoggedStep, TrainerSettings, TrainingSetup
from hangwatch.model.transforms.rewrite import Rewrite, compile_rewrite
from hangwatch.sources.discovery.titles import is_overwritten
from hangwatch.sources.proc.files import read_stat, read_whole
from hangwatch.sources.redaction import find_secret_values, hide_values

_ENVIRON_LIMIT_BYTES = 1 << 20
_T = TypeVar("_T")

#: Text of a capture that is left as it is: structs, their fields, and why. All other text goes through the net, and so does
#: every field that is added to a capture later, until it is named here.
KEPT: tuple[tuple[tuple[type, ...], str, str], ...] = (
    ((Job,), "id nodes launcher", "names of the job and of hosts, under which an incident is filed and found"),
    ((RankIdentity, SilentNode, NodeFacts), "node", "names of hosts, by which the captures of several nodes are put together"),
    ((SilentNode, RasReport), "address", "an address that the agent itself has found out"),
    ((Gap, Absence), "source", "one of our own names of sources"),
    ((NodeFacts,), "looked", "our own names of sources"),
    ((ProcessSample, ChildProcess), "state wait_channel", "the kernel's letter of a state, and its own function"),
    ((ProcessSample,), "syscall", "the kernel's name of a call"),
    ((MutexWait,), "owner_in", "the same, or one of our own words"),
    ((Frame,), "function file", "names of code, compared between ranks that have other secrets or none"),
    ((Block,), "kind", "one of our own words"),
    ((Iterations,), "counter", "the name of a variable, under which its value is looked up"),
    ((Position,), "variable digest", "the name of a variable, and a digest under a key that is nowhere else"),
    ((Group,), "name description", "what a group is called, compared between ranks that have other secrets or none"),
    ((Operation,), "op backend input_dtypes output_dtypes", "torch's own words, compared between ranks"),
    ((FlightRecord,), "source version", "one of our own words, and the number of torch's format"),
    ((Completion,), "group", "the key of a group: its name and a checksum"),
    ((Gpu,), "uuid bus_id name lost", "the driver's words for a device"),
    ((KernelEvent,), "bus_id", "the address of a device"),
    ((Port,), "device state physical_state rate", "the kernel's words for a device"),
    ((CommunicatorRank,), "host state error", "NCCL's words, told apart by the rules"),
    ((Communicator,), "id", "a checksum of NCCL's"),
    ((RasReport,), "nccl_version", "a version"),
    ((RasProblem,), "kind processes", "one of our own words, names of hosts"),
    ((LoggedStep, DeepSpeedSettings, TrainerSettings), "source", "who said it, told apart by the rules"),
    ((TrainingSetup,), "versions", "versions of distributions"),
    ((DeepSpeedSettings, TrainerSettings), "dtype", "one of our own words"),
)  # fmt: skip


class _UnreadError(Exception):
    """The environment cannot be read, or not yet: a process that is just being executed shows an empty one."""


@lru_cache(maxsize=1024)
def _read_values(pid: int, start_time: float) -> frozenset[str]:
    """Return the secret values of a process's environment; remembered even after the process is gone.

    ``start_time`` is part of the key: another process with this pid has other secrets. Raises ``_UnreadError``, which
    is not remembered.
    """
    data = read_whole(f"/proc/{pid}/environ", _ENVIRON_LIMIT_BYTES)
    if not data:
        raise _UnreadError
    if is_overwritten(data):  # a title was written over it; before, it was the parent's
        stat = read_stat(pid)
        return _read_values(stat.parent, start_time) if stat is not None and stat.parent > 1 else frozenset()
    return find_secret_values(data)


def secret_values(ranks: Iterable[RankIdentity]) -> frozenset[str]:
    """Return the secret values of these processes' environments, as far as readable."""
    found: set[str] = set()
    for one in ranks:
        with contextlib.suppress(_UnreadError):
            found |= _read_values(one.pid, one.start_time)
    return frozenset(found)


def hide_secrets(capture: Capture) -> Capture:
    """Return the capture without the secret values of its ranks."""
    return hide_in(capture, secret_values(rank.identity for rank in capture.ranks))


def hide_in(value: _T, values: Collection[str]) -> _T:
    """Return a capture, or a part of one, without these values in any text that is not ``KEPT``. Pure."""
    longest_first = sorted(values, key=len, reverse=True)  # one value may be part of another
    shape: type = type(value)
    hidden: _T = _hiding(shape)(value, cache(lambda text: hide_values(text, longest_first))) if values else value
    return hidden


@cache
def _hiding(shape: type) -> Rewrite:
    kept = {(owner, field) for owners, fields, _ in KEPT for owner in owners for field in fields.split()}

    def is_text(owner: type, field: str, leaf: inspect.Type) -> bool:
        return isinstance(leaf, inspect.StrType) and (owner, field) not in kept

    return compile_rewrite(shape, is_text)
