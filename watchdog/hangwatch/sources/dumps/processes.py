"""Which stacks belong to which rank. Pure; may import hangwatch.model and hangwatch.sources' own parts.

py-spy knows processes, not ranks. A file's name may tell the rank. If nothing else does, ranks are assumed to be in
order of pid, as launchers start them on one node; a gap says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from hangwatch.model.stacks import StackSample
from hangwatch.sources.dumps.contents import Aside
from hangwatch.sources.dumps.pyspy_text import ProcessStack

#: Processes beside the ranks, by a file that is on their main thread's stack.
_OTHERS = {
    "torch/distributed/elastic/agent/": "torchrun's own stacks, of no rank",
    "torch/distributed/launcher/": "torchrun's own stacks, of no rank",
    "deepspeed/launcher/": "DeepSpeed's launcher's stacks, of no rank",
    "accelerate/commands/": "accelerate's launcher's stacks, of no rank",
    "torch/utils/data/_utils/worker.py": "stacks of a DataLoader's worker, of no rank",
    "torch/_inductor/compile_worker/": "stacks of a compiler's worker, of no rank",
    "multiprocessing/resource_tracker.py": "stacks of a resource tracker, of no rank",
}


class RankStacks(msgspec.Struct, frozen=True):
    """The stacks of one rank, in order of time, all of one process."""

    pid: int
    samples: tuple[StackSample, ...]


class Assigned(msgspec.Struct, frozen=True):
    """Stacks by rank, the files set aside, and whether ranks were assumed to be in order of pid."""

    stacks: Mapping[int, RankStacks]
    asides: tuple[Aside, ...]
    assumed: bool = False


def assign_stacks(found: Sequence[tuple[str, ProcessStack]], ranks: Mapping[str, int], *, alone: bool) -> Assigned:
    """Return the stacks by rank.

    ``found``: file and process. ``ranks``: those that file names tell. ``alone``: there are no dumps.
    """
    asides: list[Aside] = []
    known: dict[int, list[tuple[str, ProcessStack]]] = {}
    unknown: list[tuple[str, ProcessStack]] = []
    several = {name for name, _ in found if sum(other == name for other, _ in found) > 1}
    for name, process in found:
        other = _of_no_rank(process)
        if process.rank is not None:
            known.setdefault(process.rank, []).append((name, process))
        elif other is not None:
            asides.append(Aside(name, other))
        elif name in ranks and name not in several:
            known.setdefault(ranks[name], []).append((name, process))
        else:
            unknown.append((name, process))
    assumed = bool(unknown) and alone and not known and all(process.pid > 0 for _, process in unknown)
    if assumed:
        pids = sorted({process.pid for _, process in unknown})
        for name, process in unknown:
            known.setdefault(pids.index(process.pid), []).append((name, process))
    else:
        asides += [
            Aside(
                name,
                f"the file does not show whose stacks these are (process {process.pid}); call the file ..._rank_N",
            )
            for name, process in unknown
        ]
    return Assigned({rank: _join(rank, those, asides) for rank, those in sorted(known.items())}, tuple(asides), assumed)


def _of_no_rank(process: ProcessStack) -> str | None:
    """Return what the process is if it is no rank; else None."""
    main = process.sample.main
    files = [frame.file for frame in main.frames] if main is not None else []
    return next((what for part, what in _OTHERS.items() if any(part in file for file in files)), None)


def _join(rank: int, found: Sequence[tuple[str, ProcessStack]], asides: list[Aside]) -> RankStacks:
    """Return all samples of the rank's latest process; a restarted rank had another before."""
    _, last = max(found, key=lambda one: (one[1].sample.at_ns, one[1].pid))
    for name, process in found:
        if process.pid != last.pid:
            asides.append(
                Aside(name, f"stacks of an earlier process of rank {rank} ({process.pid}, the last is {last.pid})")
            )
    samples = (process.sample for _, process in found if process.pid == last.pid)
    return RankStacks(last.pid, tuple(sorted(samples, key=lambda sample: sample.at_ns)))
