"""The incident bundle on disk: written atomically, and read so that a damaged file affects only its own part.

May import the model and the other outputs. Layout, JSON of the model's structs unless noted::

    STATE_DIR/incidents/ID/incident.json           the contract: hangwatch.model.incident, written last
                          /capture.json            job, time, ranks, groups, gaps, and hardware facts of the nodes
                          /ranks.jsonl             one line per rank: identity, processes, flight record, progress, errors in
                                                   its log, stack samples in order of time
                          /stacks.jsonl            one line per stack, deepest frame first, referred to by the ranks
                          /stacks.txt              the merged tree of the last main-thread stacks
                          /native_stacks.txt       that of all threads with native frames, where they were asked for
                          /report.html             the incident as one self-contained page
                          /training.json           what training logged, for silent failures

Ranks of one program share a few stacks, and every operation names a group that may have thousands of members: each stack and
group is stored once, and a rank's line has its index (``model.transforms.packing``). Lines and tables carry the time of their
capture: a writer that was killed half-way leaves files of two captures, and data of different times must never be compared.
"""

from __future__ import annotations

import datetime
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from hangwatch.model.capture import Capture, Gap, Job, RankCapture, SilentNode
from hangwatch.model.collectives import Group
from hangwatch.model.devices import NodeFacts
from hangwatch.model.errors import PlainError
from hangwatch.model.incident import Incident
from hangwatch.model.numbers import name_guests
from hangwatch.model.serving import EngineState
from hangwatch.model.slowness import Slow
from hangwatch.model.stacks import SharedFrames
from hangwatch.model.telemetry import TrainingSeries, to_plain
from hangwatch.model.transforms.names import names_of
from hangwatch.model.transforms.packing import (
    Frames,
    PackedGroup,
    PackedRank,
    PackedStack,
    Packer,
    unpack_groups,
    unpack_rank,
)
from hangwatch.outputs.bundle.files import encode, encode_line, write_files
from hangwatch.outputs.html.incident import render_report
from hangwatch.outputs.stack_tree import merge_main_stacks, merge_native_stacks, render_tree

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_T = TypeVar("_T")


class BundleError(PlainError):
    """A bundle that cannot be written or read; the message is one line with the repair."""


class _CaptureFile(msgspec.Struct, frozen=True):
    job: Job
    at_ns: int
    ranks: tuple[int, ...]
    gaps: tuple[Gap, ...]
    nodes: tuple[NodeFacts, ...] = ()
    silent: tuple[SilentNode, ...] = ()
    groups: tuple[PackedGroup, ...] = ()
    engine: EngineState | None = None
    slow: Slow | None = None


class _TrainingFile(msgspec.Struct, frozen=True):
    capture_at_ns: int
    training: TrainingSeries


class _RankLine(msgspec.Struct, frozen=True):
    rank: int
    capture_at_ns: int
    seen: RankCapture
    stacks: tuple[PackedStack, ...]
    native: PackedStack | None = None


class _StackLine(msgspec.Struct, frozen=True):
    stack: int
    capture_at_ns: int
    frames: Frames


def is_incident_id(text: str) -> bool:
    """True if ``text`` names a folder directly in ``incidents``, never one above it."""
    return _ID.fullmatch(text) is not None


def write_bundle(state_dir: Path, incident: Incident, capture: Capture | None) -> Path:
    """Write or update ``STATE_DIR/incidents/ID`` and return it (absolute). ``capture`` None leaves what is there.

    Directories are 0700, files 0600. Everything is staged first and then put in place, ``incident.json`` last and
    flushed to disk; a failure leaves the bundle as it was.

    Raises:
        BundleError: the directory cannot be created or written (permission, space), or the id is no file name.
    """
    if not is_incident_id(incident.id):
        raise BundleError(f"incident id {incident.id!r} cannot name a directory; use letters, digits, '.', '_' and '-'")
    folder = state_dir.absolute() / "incidents" / incident.id
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        for owned in (folder.parent, folder):
            owned.mkdir(mode=0o700, exist_ok=True)
            if stat.S_IMODE(owned.stat().st_mode) != 0o700:
                owned.chmod(0o700)
        write_files(folder, _contents(folder, incident, capture))
    except OSError as error:
        where = error.filename or folder
        raise BundleError(
            f"cannot write the incident to {where}: {error.strerror or error}; free or grant the space, "
            "or choose another place with --state-dir DIR"
        ) from error
    return folder


def _contents(folder: Path, incident: Incident, capture: Capture | None) -> Iterator[tuple[str, Iterable[bytes]]]:
    if capture is not None:
        packer = Packer(encode_line)
        yield "ranks.jsonl", _rank_lines(capture, packer)
        # The tables are complete only now.
        yield "stacks.jsonl", _stack_lines(capture.at_ns, packer.frames)
        ranks = tuple(rank.rank for rank in capture.ranks)
        header = _CaptureFile(
            capture.job,
            capture.at_ns,
            ranks,
            capture.gaps,
            capture.nodes,
            capture.silent,
            packer.groups,
            capture.engine,
            capture.slow,
        )
        yield "capture.json", [encode(header)]
        if capture.training is not None:
            yield "training.json", [encode(to_plain(_TrainingFile(capture.at_ns, capture.training)))]
        tree = merge_main_stacks(capture)
        yield "stacks.txt", [_text(name_guests(render_tree(tree), names_of(capture)))]
        if any(rank.native is not None for rank in capture.ranks):
            native = render_tree(merge_native_stacks(capture))
            yield "native_stacks.txt", [_text(name_guests(native, names_of(capture)))]
        yield "report.html", [_text(render_report(incident, capture, tree))]
    else:
        yield "report.html", [_text(render_report(incident, _stored(folder)))]
    yield "incident.json", [encode(incident)]


def _rank_lines(capture: Capture, packer: Packer) -> Iterator[bytes]:
    for rank in capture.ranks:
        packed = packer.pack(rank)
        yield encode_line(_RankLine(rank.rank, capture.at_ns, packed.rank, packed.stacks, packed.native)) + b"\n"


def _stack_lines(at_ns: int, stacks: Iterable[bytes]) -> Iterator[bytes]:
    for place, frames in enumerate(stacks):
        yield b'{"stack":%d,"capture_at_ns":%d,"frames":%s}\n' % (place, at_ns, frames)


def _stored(folder: Path) -> Capture | None:
    """Return the capture of an earlier write as far as it is readable; None without one."""
    try:
        _, capture = read_bundle(folder)
    except BundleError:
        return None
    return capture if capture.ranks else None


def _text(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def read_incident(path: Path) -> Incident | None:
    """Return the document of the bundle at ``path``; None where it is missing or broken."""
    return _read(path / "incident.json", Incident, [])


def read_bundle(path: Path) -> tuple[Incident | None, Capture]:
    """Return the document (None if missing or broken) and the capture that ``write_bundle`` wrote at ``path``.

    A broken file of a rank, or one of another capture, becomes a gap; the rest is read. Without a stored capture, the
    returned one has no ranks.

    Raises:
        BundleError: not a directory, or neither a readable document nor a readable capture in it.
    """
    if not path.is_dir():
        raise BundleError(f"{path} is not an incident directory; give the folder that holds incident.json")
    gaps: list[Gap] = []
    incident = _read(path / "incident.json", Incident, gaps)
    header = _read(path / "capture.json", _CaptureFile, gaps)
    if header is not None:
        found = tuple(_read_ranks(path, header, gaps))
        training = _read_training(path, header.at_ns, gaps)
        return incident, Capture(
            header.job,
            header.at_ns,
            found,
            header.gaps + tuple(gaps),
            header.nodes,
            training,
            header.silent,
            header.engine,
            slow=header.slow,
        )
    if incident is None:
        reason = "; ".join(gap.reason for gap in gaps)
        raise BundleError(f"{path} holds no incident that can be read: {reason}; give the folder of another incident")
    job = Job(**msgspec.structs.asdict(incident.job))
    return incident, Capture(job, _unix_ns(incident.detected_at), (), tuple(gaps))


def read_document(path: Path) -> Incident:
    """Return only the document that ``write_bundle`` wrote at ``path``. Raises ``BundleError`` if it is unreadable."""
    gaps: list[Gap] = []
    incident = _read(path / "incident.json", Incident, gaps)
    if incident is None:
        reason = "; ".join(gap.reason for gap in gaps)
        raise BundleError(f"{path} holds no incident that can be read: {reason}; give another incident")
    return incident


def _read_training(path: Path, at_ns: int, gaps: list[Gap]) -> TrainingSeries | None:
    file = path / "training.json"
    found = _read(file, _TrainingFile, gaps) if file.exists() else None
    if found is not None and found.capture_at_ns != at_ns:
        gaps.append(Gap("bundle", "training.json belongs to another capture"))
        return None
    return found.training if found is not None else None


def _read_ranks(path: Path, header: _CaptureFile, gaps: list[Gap]) -> Iterator[RankCapture]:
    """Yield the ranks that the header names, as far as their lines and the tables are readable."""
    try:
        groups = unpack_groups(header.groups)
    except ValueError as error:
        gaps.append(Gap("bundle", f"capture.json {error}"))
        return
    stacks: dict[int, Frames] = {}
    for stack in _read_lines(path / "stacks.jsonl", _StackLine, gaps):
        if stack.capture_at_ns == header.at_ns:
            stacks[stack.stack] = SharedFrames(stack.frames)
    lines = {line.rank: line for line in _read_lines(path / "ranks.jsonl", _RankLine, gaps)}
    for rank in header.ranks:
        line = lines.get(rank)
        if line is None:
            gaps.append(Gap("bundle", "ranks.jsonl has no line of it that can be read", rank))
        elif line.capture_at_ns != header.at_ns or line.seen.rank != rank:
            gaps.append(Gap("bundle", "its line in ranks.jsonl belongs to another capture or rank", rank))
        else:
            yield from _unpack(line, groups, stacks, gaps)


def _unpack(
    line: _RankLine, groups: Sequence[Group], stacks: Mapping[int, Frames], gaps: list[Gap]
) -> Iterator[RankCapture]:
    kept = tuple(sample for sample in line.stacks if stacks.keys() >= set(sample.frames))
    native = line.native if line.native is not None and stacks.keys() >= set(line.native.frames) else None
    if len(kept) < len(line.stacks) or native is not line.native:
        gaps.append(Gap("bundle", "stacks.jsonl lacks stacks of it, or is of another capture", line.rank))
    try:
        yield unpack_rank(PackedRank(line.seen, kept, native), groups, stacks)
    except ValueError as error:
        gaps.append(Gap("bundle", f"its line in ranks.jsonl {error}", line.rank))


def _read_lines(file: Path, shape: type[_T], gaps: list[Gap]) -> Iterator[_T]:
    """Yield the file's lines up to the first unreadable one, which becomes a gap. Only regular files are opened."""
    decoder = msgspec.json.Decoder(shape)
    damaged = None
    try:
        if not file.exists():
            damaged = f"{file.name} is missing"
        elif not file.is_file():
            damaged = f"{file.name} is not a regular file"
        else:
            with file.open("rb") as lines:
                for number, line in enumerate(lines, 1):
                    try:
                        yield decoder.decode(line)
                    except _UNDECODABLE as error:
                        damaged = damaged or f"line {number} of {file.name} is damaged: {error}"
    except OSError as error:
        damaged = f"{file.name} cannot be read: {error.strerror or error}"
    if damaged is not None:
        gaps.append(Gap("bundle", damaged))


def _read(file: Path, shape: type[_T], gaps: list[Gap]) -> _T | None:
    """Return the file's value, or None and add a gap. Only regular files are opened: reading a FIFO would never end."""
    try:
        if not file.exists():
            reason = f"{file.name} is missing"
        elif not file.is_file():
            reason = f"{file.name} is not a regular file"
        else:
            # Not strictly: numbers that JSON does not have (nan) are written as words.
            return msgspec.json.decode(file.read_bytes(), type=shape, strict=shape is not _TrainingFile)
    except OSError as error:
        reason = f"{file.name} cannot be read: {error.strerror or error}"
    except _UNDECODABLE as error:
        reason = f"{file.name} is damaged: {error}"
    gaps.append(Gap("bundle", reason))
    return None


def _unix_ns(rfc3339: str) -> int:
    try:
        moment = msgspec.convert(rfc3339, datetime.datetime)
    except msgspec.ValidationError:
        return 0
    return int(moment.timestamp() * 1e9)


def list_incidents(state_dir: Path) -> list[Incident]:
    """Return all readable incidents, oldest onset first; none if nothing was ever written. Never raises."""
    try:
        folders = sorted(os.scandir(state_dir / "incidents"), key=lambda entry: entry.name)
    except OSError:
        return []
    found = (_read(Path(folder.path) / "incident.json", Incident, []) for folder in folders)
    return sorted((incident for incident in found if incident is not None), key=lambda one: (one.onset_at, one.id))
