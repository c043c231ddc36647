"""The incident bundle on disk: written so that it is either the old one or the new one, read so that damage stays local.

May import the model and the other outputs. Layout, JSON of the model's own structs where nothing else is said::

    STATE_DIR/incidents/ID/incident.json                   the contract: hangwatch.model.incident, written last
                          /capture.json                    job, time, ranks, gaps, and what the nodes say of their hardware
                          /stacks.txt                      the merged tree of the last main-thread stacks
                          /stacks.speedscope.json          the same and each rank's own, for speedscope
                          /report.html                     all of it for people, in one file
                          /training.json                   what training said of itself, where that is the matter
                          /ranks/RANK/stacks.json          samples in order of time
                          /ranks/RANK/flight_recorder.json flight record and progress
                          /ranks/RANK/process.json         identity, process samples, beat age, errors in the log

Every file of a rank bears the time of its capture: a writer that was killed half-way leaves files of two captures side
by side, and ranks seen at different times must never be compared.
"""

from __future__ import annotations

import datetime
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from hangwatch.model.capture import Capture, Gap, Job, RankCapture, RankIdentity, SilentNode
from hangwatch.model.collectives import FlightRecord, GroupProgress
from hangwatch.model.devices import NodeFacts
from hangwatch.model.errors import PlainError
from hangwatch.model.incident import Incident
from hangwatch.model.processes import ProcessSample
from hangwatch.model.stacks import StackSample
from hangwatch.model.telemetry import TrainingSeries, to_plain
from hangwatch.outputs.files import encode, write_files
from hangwatch.outputs.report import render_report
from hangwatch.outputs.speedscope import encode_speedscope
from hangwatch.outputs.stack_tree import merge_main_stacks, render_tree

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


class _TrainingFile(msgspec.Struct, frozen=True):
    capture_at_ns: int
    training: TrainingSeries


class _StacksFile(msgspec.Struct, frozen=True):
    capture_at_ns: int
    samples: tuple[StackSample, ...]


class _FlightFile(msgspec.Struct, frozen=True):
    capture_at_ns: int
    flight: FlightRecord | None
    progress: tuple[GroupProgress, ...] | None


class _ProcessFile(msgspec.Struct, frozen=True):
    capture_at_ns: int
    identity: RankIdentity
    processes: tuple[ProcessSample, ...]
    beat_age_s: float | None
    log_error: tuple[str, ...]
    groups_created: int | None = None
    thread_error: tuple[str, ...] = ()
    handled_error: tuple[str, ...] = ()


def is_incident_id(text: str) -> bool:
    """Whether ``text`` names one folder below ``incidents``, and nothing above it."""
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


def _contents(folder: Path, incident: Incident, capture: Capture | None) -> Iterator[tuple[str, bytes]]:
    if capture is not None:
        at_ns = capture.at_ns
        ranks = tuple(rank.rank for rank in capture.ranks)
        yield (
            "capture.json",
            encode(_CaptureFile(capture.job, at_ns, ranks, capture.gaps, capture.nodes, capture.silent)),
        )
        for rank in capture.ranks:
            place = f"ranks/{rank.rank}"
            yield (
                f"{place}/process.json",
                encode(
                    _ProcessFile(
                        at_ns,
                        rank.identity,
                        rank.processes,
                        rank.beat_age_s,
                        rank.log_error,
                        rank.groups_created,
                        rank.thread_error,
                        rank.handled_error,
                    )
                ),
            )
            yield f"{place}/stacks.json", encode(_StacksFile(at_ns, rank.stacks))
            yield f"{place}/flight_recorder.json", encode(_FlightFile(at_ns, rank.flight, rank.progress))
        if capture.training is not None:
            yield "training.json", encode(to_plain(_TrainingFile(at_ns, capture.training)))
        tree = merge_main_stacks(capture)
        yield "stacks.txt", _text(render_tree(tree))
        yield "stacks.speedscope.json", encode_speedscope(incident, capture)
        yield "report.html", _text(render_report(incident, capture, tree))
    else:
        yield "report.html", _text(render_report(incident, _stored(folder)))
    yield "incident.json", encode(incident)


def _stored(folder: Path) -> Capture | None:
    """The capture that an earlier write has left, as far as it can be read."""
    try:
        _, capture = read_bundle(folder)
    except BundleError:
        return None
    return capture if capture.ranks else None


def _text(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def read_bundle(path: Path) -> tuple[Incident | None, Capture]:
    """What ``write_bundle`` wrote at ``path``: the document, None where it is missing or broken, and the capture.

    A broken file of a rank, or one of another capture, becomes a gap; the rest is read. A bundle without a capture
    gives one without ranks.

    Raises:
        BundleError: not a directory, or it holds neither a readable document nor a readable capture.
    """
    if not path.is_dir():
        raise BundleError(f"{path} is not an incident directory; give the folder that holds incident.json")
    gaps: list[Gap] = []
    incident = _read(path / "incident.json", Incident, gaps)
    header = _read(path / "capture.json", _CaptureFile, gaps)
    if header is not None:
        ranks = [_read_rank(path / "ranks" / str(rank), rank, header.at_ns, gaps) for rank in header.ranks]
        found = tuple(rank for rank in ranks if rank is not None)
        training = _read_training(path, header.at_ns, gaps)
        return incident, Capture(
            header.job, header.at_ns, found, header.gaps + tuple(gaps), header.nodes, training, header.silent
        )
    if incident is None:
        reason = "; ".join(gap.reason for gap in gaps)
        raise BundleError(f"{path} holds no incident that can be read: {reason}; give the folder of another incident")
    entry = incident.job
    job = Job(entry.id, entry.world_size, entry.nodes, entry.launcher, entry.command)
    return incident, Capture(job, _unix_ns(incident.detected_at), (), tuple(gaps))


def _read_training(path: Path, at_ns: int, gaps: list[Gap]) -> TrainingSeries | None:
    file = path / "training.json"
    found = _read(file, _TrainingFile, gaps) if file.exists() else None
    if found is not None and found.capture_at_ns != at_ns:
        gaps.append(Gap("bundle", "training.json belongs to another capture"))
        return None
    return found.training if found is not None else None


def _read_rank(place: Path, rank: int, at_ns: int, gaps: list[Gap]) -> RankCapture | None:
    process = _read(place / "process.json", _ProcessFile, gaps, rank)
    stacks = _read(place / "stacks.json", _StacksFile, gaps, rank)
    flight = _read(place / "flight_recorder.json", _FlightFile, gaps, rank)
    if process is None:  # without its identity a rank is nobody; the gap says so
        return None
    if process.capture_at_ns != at_ns or process.identity.rank != rank:
        gaps.append(Gap("bundle", "process.json belongs to another capture or rank", rank))
        return None
    if stacks is not None and stacks.capture_at_ns != at_ns:
        gaps.append(Gap("bundle", "stacks.json belongs to another capture", rank))
        stacks = None
    if flight is not None and flight.capture_at_ns != at_ns:
        gaps.append(Gap("bundle", "flight_recorder.json belongs to another capture", rank))
        flight = None
    return RankCapture(
        identity=process.identity,
        processes=process.processes,
        stacks=stacks.samples if stacks is not None else (),
        flight=flight.flight if flight is not None else None,
        progress=flight.progress if flight is not None else None,
        beat_age_s=process.beat_age_s,
        log_error=process.log_error,
        groups_created=process.groups_created,
        thread_error=process.thread_error,
        handled_error=process.handled_error,
    )


def _read(file: Path, shape: type[_T], gaps: list[Gap], rank: int | None = None) -> _T | None:
    """The file's value, or None and a gap. Only regular files are opened: reading a FIFO would never end."""
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
    gaps.append(Gap("bundle", reason, rank))
    return None


def _unix_ns(rfc3339: str) -> int:
    try:
        moment = msgspec.convert(rfc3339, datetime.datetime)
    except msgspec.ValidationError:
        return 0
    return int(moment.timestamp() * 1e9)


def list_incidents(state_dir: Path) -> list[Incident]:
    """All incidents that can be read, oldest onset first; none where nothing was ever written. Never raises."""
    try:
        folders = sorted(os.scandir(state_dir / "incidents"), key=lambda entry: entry.name)
    except OSError:
        return []
    found = (_read(Path(folder.path) / "incident.json", Incident, []) for folder in folders)
    return sorted((incident for incident in found if incident is not None), key=lambda one: (one.onset_at, one.id))
