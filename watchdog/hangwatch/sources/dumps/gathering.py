"""From a path to what is known of a job: every file decoded, dumps and stacks put together by rank.

May import hangwatch.model and hangwatch.sources' own parts. One file's bytes are held at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from hangwatch.model.capture import Capture, Gap, Job, RankCapture, RankIdentity
from hangwatch.model.text import format_ranks
from hangwatch.sources.dumps.archives import ArchiveError
from hangwatch.sources.dumps.belonging import Belonging, Found, sort_out
from hangwatch.sources.dumps.clocks import correct_clocks
from hangwatch.sources.dumps.contents import Aside, Content, read_content
from hangwatch.sources.dumps.decode import RankDump, StackDump, UnknownContentError, decode_content
from hangwatch.sources.dumps.membership import complete_groups
from hangwatch.sources.dumps.names import ranks_by_name
from hangwatch.sources.dumps.processes import Assigned, assign_stacks
from hangwatch.sources.dumps.pyspy_text import ProcessStack
from hangwatch.sources.dumps.workers import map_files
from hangwatch.sources.flight.pickles import FlightFormatError
from hangwatch.sources.stacks.samples import StackFormatError

#: Called after every file: how many are done, and of how many, None where that is not known yet.
Progress = Callable[[int, "int | None"], None]
#: Files that are named one by one in the document; the rest of them is counted.
_NAMED = 40
_FOREIGN_NAMED = 3
#: What a record without operations may mean (``ProcessGroupNCCL::collective`` of torch 2.12 has the communicator made first).
_BLANK = (
    "it may be in its first collective, which NCCL records once all ranks have connected; py-spy dump shows where it is"
)


class Gathered(msgspec.Struct, frozen=True):
    """What a path held. ``timed``: the files tell when the dumps were taken, and not only the dumps' own last entries.

    ``disagreeing``: the dumps are of different moments, between which the job went on.
    """

    capture: Capture
    timed: bool
    disagreeing: bool


def gather(contents: Iterable[Content | Aside], *, job: str, total: int | None, progress: Progress) -> Gathered:
    """The capture of the job that the files are of; its gaps name every file that is not used, and why."""
    dumps: list[tuple[str, RankDump]] = []
    stacks: list[tuple[str, ProcessStack]] = []
    asides: list[Aside] = []
    for number, (name, decoded) in enumerate(decode_all(contents), 1):
        if isinstance(decoded, RankDump):
            dumps.append((name, decoded))
        elif isinstance(decoded, StackDump):
            stacks += [(name, process) for process in decoded.processes]
        else:
            asides.append(decoded)
        progress(number, total)
    ranks = ranks_by_name([name for name, _ in dumps], {})
    belonging = sort_out([Found(name, dump, ranks.get(name)) for name, dump in dumps])
    pids = {name: process.pid for name, process in stacks}
    assigned = assign_stacks(stacks, ranks_by_name(list(pids), pids), alone=not dumps)
    return _put_together(belonging, assigned, asides, job)


def decode_all(contents: Iterable[Content | Aside]) -> Iterator[tuple[str, RankDump | StackDump | Aside]]:
    """Every file by name, decoded, by all cores where there are many; what cannot be is an ``Aside`` that says why."""
    for content, decoded in map_files(_decode, contents, _lost):
        yield content.name, decoded


def _decode(content: Content | Aside) -> RankDump | StackDump | Aside:
    return content if isinstance(content, Aside) else decode_file(content)


def _lost(content: Content | Aside) -> Aside:
    return Aside(content.name, "reading it ended the process that did, probably for want of memory")


def decode_file(content: Content) -> RankDump | StackDump | Aside:
    """One file, read and decoded, or why it is of no use."""
    try:
        return decode_content(read_content(content), modified_ns=content.modified_ns, packed_bytes=content.packed_bytes)
    except UnknownContentError as error:
        return Aside(content.name, str(error), foreign=True)
    except (FlightFormatError, StackFormatError, ArchiveError) as error:
        return Aside(content.name, str(error))
    except OSError as error:
        return Aside(content.name, f"it cannot be read: {error.strerror or error}")


def _put_together(belonging: Belonging, assigned: Assigned, asides: Sequence[Aside], job: str) -> Gathered:
    world = belonging.world or tuple(range(max(assigned.stacks, default=-1) + 1))
    flights, gaps = complete_groups({rank: one.dump.flight for rank, one in belonging.dumps.items()}, world)
    flights, skewed = correct_clocks(flights)
    gaps += skewed
    captures = []
    for rank in sorted(flights.keys() | assigned.stacks.keys()):
        stacks = assigned.stacks.get(rank)
        identity = RankIdentity(rank, stacks.pid if stacks is not None else 0, 0.0)
        captures.append(
            RankCapture(identity, stacks=stacks.samples if stacks is not None else (), flight=flights.get(rank))
        )
    absent = sorted(set(world) - flights.keys()) if belonging.dumps else []
    if absent:
        gaps = (
            Gap("flight recorder", f"no usable dump of rank {format_ranks(absent)} of {len(world)} was found"),
            *gaps,
        )
    blank = [rank for rank, flight in flights.items() if flight.blank]
    if blank:
        gaps += (Gap("flight recorder", f"rank {format_ranks(blank)} recorded no operation", hint=_BLANK),)
    if assigned.assumed:
        hint = "call the files ..._rank_N"
        gaps += (Gap("stacks", "they name no rank: ranks are taken in order of process id", hint=hint),)
    gaps += _describe_asides((*asides, *belonging.asides, *assigned.asides))
    times = [flight.at_ns for flight in flights.values()]
    times += [sample.at_ns for stacks in assigned.stacks.values() for sample in stacks.samples]
    timed = bool(belonging.dumps) and all(flight.at_ns > (flight.newest_ns or 0) for flight in flights.values())
    capture = Capture(
        Job(job, len(world) or None, launcher="unknown"), max(times, default=0), tuple(captures), tuple(gaps)
    )
    return Gathered(capture, timed, belonging.disagreeing)


def _describe_asides(asides: Sequence[Aside]) -> tuple[Gap, ...]:
    """A line for every file that is set aside; those that never were dumps in one."""
    named = [Gap("file", f"{one.name}: {one.reason}") for one in asides if not one.foreign]
    if len(named) > _NAMED:
        named = [*named[:_NAMED], Gap("file", f"and {len(named) - _NAMED} more files are not used")]
    foreign = sorted({one.name for one in asides if one.foreign})
    if foreign:
        more = f" and {len(foreign) - _FOREIGN_NAMED} more" if len(foreign) > _FOREIGN_NAMED else ""
        named.append(Gap("file", f"neither dumps nor stacks: {', '.join(foreign[:_FOREIGN_NAMED])}{more}"))
    return tuple(named)
