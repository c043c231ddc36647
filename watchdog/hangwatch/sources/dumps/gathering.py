"""Puts together what a path tells of a job: every file decoded, dumps and stacks by rank.

May import hangwatch.model and hangwatch.sources' own parts. One file's bytes are held at a time.

Times in a dump are by the clock of its own host. A collective of all members completes on all of them within moments,
so the hosts' times of the same collectives tell how far their clocks are apart.

If the content does not tell a file's rank, its name does. People and tools name dumps as they like:
``nccl_trace_rank_3`` and ``comm_lib_trace_rank_3`` (torch's defaults), ``_dump_3``, ``host_3``, ``rank3/stacks.txt``,
``job-77.r03.json.gz``. A number after the word rank is one; else it is the number in which the names differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median, median_low

import msgspec

from hangwatch.model.capture import Capture, Gap, Job, RankCapture, RankIdentity
from hangwatch.model.collectives import FlightRecord
from hangwatch.model.text import number_ranks, ranks_do
from hangwatch.model.transforms.clocks import shift
from hangwatch.sources.dumps.archives import ArchiveError
from hangwatch.sources.dumps.belonging import Belonging, Found, sort_out
from hangwatch.sources.dumps.contents import Aside, Content, read_content
from hangwatch.sources.dumps.debug_server import DebugDump, LastStacks, keep_last, take_last
from hangwatch.sources.dumps.decode import Decoded, RankDump, StackDump, UnknownContentError, decode_content
from hangwatch.sources.dumps.membership import complete_groups
from hangwatch.sources.dumps.processes import Assigned, assign_stacks
from hangwatch.sources.dumps.pyspy_text import ProcessStack
from hangwatch.sources.dumps.workers import map_files
from hangwatch.sources.flight.pickles import FlightFormatError
from hangwatch.sources.stacks.samples import StackFormatError

#: By rank, group key and sequence number: when a collective of all members was found completed.
Completions = Mapping[int, Mapping[tuple[str, int], int]]

#: A rank checks for completed operations ten times a second, older versions once: a smaller difference is no skew.
MIN_SKEW_NS = 3_000_000_000
#: One operation may have been found completed late: its rank was stopped, or its watchdog was delayed.
_MIN_SHARED = 3


def estimate_skews(completions: Completions) -> dict[int, int]:
    """Return by how many ns the clock of a rank is ahead of most others', if by more than ``MIN_SKEW_NS``.

    Clocks are compared from rank to rank along shared groups; a rank that shares too few completed collectives counts
    as right.
    """
    users: dict[tuple[str, int], list[int]] = {}
    for rank, times in completions.items():
        for at in times:
            users.setdefault(at, []).append(rank)
    skews: dict[int, int] = {}
    for start in sorted(completions, key=lambda rank: (-len(completions[rank]), rank)):
        if start in skews:
            continue
        skews[start] = 0
        reached = [start]
        for known in reached:
            apart: dict[int, list[int]] = {}
            for at, time_ns in completions[known].items():
                for rank in users[at]:
                    if rank not in skews:
                        apart.setdefault(rank, []).append(completions[rank][at] - time_ns)
            for rank, found in apart.items():
                if len(found) >= _MIN_SHARED:
                    skews[rank] = skews[known] + round(median(found))
                    reached.append(rank)
        usual = median_low(skews[rank] for rank in reached)
        skews.update({rank: skews[rank] - usual for rank in reached})
    return {rank: skew for rank, skew in skews.items() if abs(skew) >= MIN_SKEW_NS}


def correct_clocks(flights: Mapping[int, FlightRecord]) -> tuple[dict[int, FlightRecord], tuple[Gap, ...]]:
    """Return the records by the clock of most ranks, and gaps that say what was corrected."""
    skews = estimate_skews(
        {rank: {(c.group, c.seq): c.at_ns for c in flight.completions} for rank, flight in flights.items()}
    )
    if not skews:
        return dict(flights), ()
    corrected = {rank: shift(flight, -skews.get(rank, 0)) for rank, flight in flights.items()}
    alike: dict[int, list[int]] = {}
    for rank, skew in sorted(skews.items()):
        near = next((known for known in alike if abs(known - skew) < MIN_SKEW_NS), skew)
        alike.setdefault(near, []).append(rank)
    corrections = (
        f"{ranks_do(ranks, 'was', 'were')} {abs(skew) / 1e9:.0f} s {'ahead' if skew > 0 else 'behind'}"
        for skew, ranks in alike.items()
    )
    hint = "synchronize the clocks of all hosts (NTP, chrony)"
    return corrected, (
        Gap("flight recorder", f"clocks differ; times were corrected: {', '.join(corrections)}", hint=hint),
    )


_ENDINGS = re.compile(
    r"(\.(pkl|pickle|p|json|txt|log|out|bin|dump|trace|fr|gz|xz|bz2|zst|tar|tgz|zip|py-?spy|stacks?))+$", re.IGNORECASE
)
#: ``local_rank`` and ``node_rank`` are numbers of something else.
_CALLED = re.compile(
    r"(?<![a-z])(?<!local[_\-.])(?<!node[_\-.])(?<!group[_\-.])(?:global[_\-.]?)?rank[_\-.=]?0*(\d{1,7})(?!\d)",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d+")
#: Words before numbers that count within a node, not within the job.
_WITHIN_NODE = re.compile(
    r"(local[_\-.]?rank|lrank|local|gpu|device|dev|cuda|slot|worker|proc)[_\-.=]?$", re.IGNORECASE
)
_RANK_LIMIT = 1 << 20


def ranks_by_name(names: Sequence[str], taken: Mapping[str, int]) -> dict[str, int]:
    """Return the rank of each file, as far as the names tell.

    ``taken``: numbers in a name that are no rank (a pid). Two files may have one rank: they are two dumps of it.
    """
    found: dict[str, int] = {}
    shapes: dict[tuple[str, ...], dict[str, tuple[int, ...]]] = {}
    for name in names:
        bare = _ENDINGS.sub("", name)
        called = _CALLED.findall(bare)
        if called:
            found[name] = int(called[-1])
            continue
        numbers = tuple(int(number[-20:]) for number in _NUMBER.findall(bare))
        shapes.setdefault(tuple(_NUMBER.split(bare)), {})[name] = numbers
    for words, alike in shapes.items():
        found |= _by_difference(words, alike, taken)
    return found


def _by_difference(
    words: Sequence[str], alike: Mapping[str, tuple[int, ...]], taken: Mapping[str, int]
) -> dict[str, int]:
    """Return the ranks of names that differ only in their numbers; ``words`` is the text around the numbers.

    The rank is the last number that is unique to each name; else the last one that varies, since those before it tell
    runs apart. If one number counts nodes and another counts within a node, the rank cannot be known.
    """
    places = range(len(words) - 1)
    columns = [{name: numbers[place] for name, numbers in alike.items()} for place in places]
    varying = [place for place in places if len(set(columns[place].values())) > 1 or len(alike) == 1]
    within = [place for place in places if _WITHIN_NODE.search(words[place])]
    if within and any(place not in within for place in varying):
        return {}
    possible = [
        place
        for place in varying
        if all(number < _RANK_LIMIT and number != taken.get(name) for name, number in columns[place].items())
    ]
    distinct = [place for place in possible if len(set(columns[place].values())) == len(alike)]
    chosen = (distinct or [place for place in possible if place == varying[-1]])[-1:]
    return columns[chosen[0]] if chosen else {}


#: Called after every file with the number done and the total, None if not known yet.
Progress = Callable[[int, "int | None"], None]
#: How many files the document names; the others are only counted.
_NAMED = 40
_FOREIGN_NAMED = 3
#: What a record without operations may mean (``ProcessGroupNCCL::collective`` of torch 2.12 has the communicator made first).
_BLANK = (
    "the rank may be in its first collective, which NCCL records only after all ranks have "
    "connected; py-spy dump shows where it is"
)
#: What it may mean that there is no dump of a rank. ``ProcessGroupNCCL::shutdown`` (torch 2.13, pytorch#196968) ends the thread
#: that answers the others' requests for a dump before it destroys communicators; ``nccl2`` has no such requests (#197232).
_ABSENT = (
    "a rank leaves none if it has ended or is in destroy_process_group (with the backend nccl2, also if none of its own "
    "operations has failed); its log and py-spy dump show more"
)
#: What it may mean that the server of a rank, which runs Python for a stack, does not answer.
_SILENT = "its process may be gone or stopped, or a thread holds the GIL; py-spy dump --nonblocking shows where it is"


class Gathered(msgspec.Struct, frozen=True):
    """What a path held.

    ``timed``: the files tell when the dumps were taken, not only the dumps' last entries. ``disagreeing``: the dumps
    are of different moments, and the job went on in between.
    """

    capture: Capture
    timed: bool
    disagreeing: bool


def gather(contents: Iterable[Content | Aside], *, job: str, total: int | None, progress: Progress) -> Gathered:
    """Return the capture of the job; its gaps name every unused file and why it is not used."""
    dumps: list[tuple[str, RankDump]] = []
    stacks: list[tuple[str, ProcessStack]] = []
    debug: list[tuple[str, DebugDump]] = []
    asides: list[Aside] = []
    for number, (name, decoded) in enumerate(decode_all(contents), 1):
        if isinstance(decoded, RankDump):
            dumps.append((name, decoded))
        elif isinstance(decoded, StackDump):
            stacks += [(name, process) for process in decoded.processes]
        elif isinstance(decoded, DebugDump):
            debug = keep_last([*debug, (name, decoded)])
        else:
            asides.append(decoded)
        progress(number, total)
    ranks = ranks_by_name([name for name, _ in dumps], {})
    belonging = sort_out([Found(name, dump, ranks.get(name)) for name, dump in dumps])
    pids = {name: process.pid for name, process in stacks}
    last = take_last(debug)
    stacks += [(last.name, process) for process in last.processes]
    assigned = assign_stacks(stacks, ranks_by_name(list(pids), pids), alone=not dumps)
    return _put_together(belonging, assigned, last, asides, job)


def decode_all(contents: Iterable[Content | Aside]) -> Iterator[tuple[str, Decoded | Aside]]:
    """Yield every file's name with its decoded content, or an ``Aside`` with the reason; many files use all cores."""
    for content, decoded in map_files(_decode, contents, _lost):
        yield content.name, decoded


def _decode(content: Content | Aside) -> Decoded | Aside:
    return content if isinstance(content, Aside) else decode_file(content)


def _lost(content: Content | Aside) -> Aside:
    return Aside(content.name, "the process that read it died, probably out of memory")


def decode_file(content: Content) -> Decoded | Aside:
    """Return one file's decoded content, or an ``Aside`` with the reason."""
    try:
        return decode_content(read_content(content), modified_ns=content.modified_ns, packed_bytes=content.packed_bytes)
    except UnknownContentError as error:
        return Aside(content.name, str(error), foreign=True)
    except (FlightFormatError, StackFormatError, ArchiveError) as error:
        return Aside(content.name, str(error))
    except OSError as error:
        return Aside(content.name, f"it cannot be read: {error.strerror or error}")


def _put_together(
    belonging: Belonging, assigned: Assigned, last: LastStacks, asides: Sequence[Aside], job: str
) -> Gathered:
    world = belonging.world or tuple(range(max((*assigned.stacks, *last.silent), default=-1) + 1))
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
            Gap("flight recorder", f"no usable dump of {number_ranks(absent)} of {len(world)}", hint=_ABSENT),
            *gaps,
        )
    blank = [rank for rank, flight in flights.items() if flight.blank]
    if blank:
        gaps += (Gap("flight recorder", f"{number_ranks(blank)} recorded no operation", hint=_BLANK),)
    if assigned.assumed:
        hint = "call the files ..._rank_N"
        gaps += (Gap("stacks", "the files name no rank; ranks are assigned by process id", hint=hint),)
    gaps += tuple(
        Gap("debug server", f"no stack: {why.rstrip(': ')}", rank, _SILENT) for rank, why in sorted(last.silent.items())
    )
    if last.moved:
        moved = ranks_do(last.moved, "was", "were")
        gaps += (Gap("debug server", f"{moved} elsewhere in the dump before {last.name}: the job may have gone on"),)
    gaps += _describe_asides((*asides, *belonging.asides, *assigned.asides))
    times = [flight.at_ns for flight in flights.values()]
    times += [sample.at_ns for stacks in assigned.stacks.values() for sample in stacks.samples]
    timed = bool(belonging.dumps) and all(flight.at_ns > (flight.newest_ns or 0) for flight in flights.values())
    capture = Capture(
        Job(job, len(world) or None, launcher="unknown"), max(times, default=0), tuple(captures), tuple(gaps)
    )
    return Gathered(capture, timed, belonging.disagreeing)


def _describe_asides(asides: Sequence[Aside]) -> tuple[Gap, ...]:
    """Return a gap for every file that is set aside, and a single one for all that never were dumps."""
    named = [Gap("file", f"{one.name}: {one.reason}") for one in asides if not one.foreign]
    if len(named) > _NAMED:
        named = [*named[:_NAMED], Gap("file", f"and {len(named) - _NAMED} more files are not used")]
    foreign = sorted({one.name for one in asides if one.foreign})
    if foreign:
        more = f" and {len(foreign) - _FOREIGN_NAMED} more" if len(foreign) > _FOREIGN_NAMED else ""
        named.append(Gap("file", f"neither dumps nor stacks: {', '.join(foreign[:_FOREIGN_NAMED])}{more}"))
    return tuple(named)
