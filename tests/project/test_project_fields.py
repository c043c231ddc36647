"""Every field of what is stored or sent: no secret stays in its text, and its times move with a node's clock."""

from __future__ import annotations

import importlib
import itertools
import pkgutil
import typing
from collections.abc import Callable, Iterator
from types import NoneType, UnionType
from typing import Any, Literal

import msgspec
import pytest

from hangwatch.agent.capturing.redact import KEPT, hide_in
from hangwatch.model.capture import Capture, RankCapture
from hangwatch.model.transforms.clocks import shift
from hangwatch.model.transforms.rewrite import compile_rewrite

WORD = "correct-horse"
SECOND_NS = 1_000_000_000
#: What these rooms define is kept on disk, sent to other nodes, or shown to whoever asks.
ROOMS = (
    "hangwatch.model", "hangwatch.agent.fleet.wire", "hangwatch.outputs.bundle", "hangwatch.outputs.metrics",
    "hangwatch.outputs.push", "hangwatch.outputs.briefing",
)  # fmt: skip
_OF_A_CAPTURE = "made of a capture that has been redacted"
_OF_A_BEAT = "read by the agent alone, and redacted where it becomes part of a capture or a series"
_OF_A_JOB = "a name of the job, a host or a group, as a capture keeps it"
_OURS = "our own words and names"
#: Text that is not part of a capture, by struct: the fields, and why no secret is in them.
OTHER_TEXT = {
    "Question": ("id only connections", "our own words, and addresses of a capture that has been redacted"),
    "LeaseNotice": ("holder incident", _OURS),
    "Answer": ("question", _OURS),
    "Notification": ("bundle node", _OURS),
    "SecondLook": ("until unless action called_off", _OURS),
    "Message": ("title body severity", _OF_A_CAPTURE),
    "SharedRecord": ("node agents", _OF_A_JOB),
    "Traffic": ("local remote", "addresses"),
    "Beat": (
        "failure thread_failure handled thread_handled task_failure torch python server control problems store",
        _OF_A_BEAT,
    ),
    "BeatTask": ("name frames", _OF_A_BEAT),
    "Left": ("error", "redacted as it is read, and again as a part of a capture"),
    "BeatGroup": ("name description backend store", _OF_A_BEAT),
    "BeatTelemetry": ("setup steps", _OF_A_BEAT),
    "EngineReading": ("parts", "numbers of schedulers, which are dropped where the clocks are read"),
    "Digest": ("node agent address", _OF_A_JOB),
    "DigestGroup": ("key label", _OF_A_JOB),
    "DigestRank": ("state motion in_op world", "our own words, and the role of a process"),
    "JobOfWorld": (
        "id channel meeting launcher command role name script",
        "names of the job; its command is redacted where it is read",
    ),
    "ClaimedGroup": ("name store", "a group's name and the address of its store, as torch has them"),
    "Packed": ("frames", "stacks of a capture that has been redacted, encoded"),
    "PackedGroup": ("name description", _OF_A_JOB),
    "Incident": ("id onset_at detected_at confirmed_at ended_at captured missing schema", _OF_A_CAPTURE),
    "JobHistory": ("exclude_nodes", _OF_A_JOB),
    "PastHang": ("id nodes place names", _OF_A_CAPTURE),
    "JobEntry": ("id nodes launcher command role name script user slurm_job namespace pod", _OF_A_CAPTURE),
    "Links": ("page runbook", "addresses that the settings give to whoever is notified"),
    "Briefing": (
        "name script job_text summary culprit sides culprit_line others_line title why steps page_url runbook_url more",
        _OF_A_CAPTURE,
    ),
    "RankEntry": ("node state stack name world", _OF_A_CAPTURE),
    "RankGroup": ("name", _OF_A_CAPTURE),
    "Verdict": ("summary proof waits names", _OF_A_CAPTURE),
    "Collective": ("op group dtypes", _OF_A_CAPTURE),
    "Divergence": ("group culprit_op others_op", _OF_A_CAPTURE),
    "SourceLine": ("file function source via", _OF_A_CAPTURE),
    "Cause": ("id title explanation remedy references", _OF_A_CAPTURE),
    "Evidence": ("source says", _OF_A_CAPTURE),
    "LiveProgress": ("key label", _OF_A_JOB),
    "GroupFront": ("label key", _OF_A_JOB),
    "LiveRank": (
        "node state frame name",
        "names of a host and a role, our own words, and a function's name with its line",
    ),
    "LiveJob": (
        "id launcher command role name script stall_why",
        "names of the job; its command is redacted where it is read; our own words",
    ),
    "IncidentMetrics": ("id kind cause severity names", _OF_A_CAPTURE),
    "SourceMetrics": ("name", _OURS),
    "ReceiverMetrics": ("name", _OURS),
    "MetricsView": ("incidents_total version", _OURS),
    "ActionTaken": ("action outcome", _OURS),
    "AuditRecord": ("schema notified", _OURS),
    "Receiver": ("path", _OURS),
}
#: Times that are not part of a capture, and why they stay as they are.
OTHER_TIMES = {
    "Beat.at_ns": "read on the node that wrote it",
    "Left.at_ns": "the same",
    "Digest.at_ns": "the sender's clock is what offsets are found by",
    "LiveView.at_ns": "shown by the node that took it",
    "LastToJoin.began_ns": "shown by the node that has all ranks of the job",
    "LastToJoin.ended_ns": "the same",
    "LastToJoin.late_ns": "a difference",
    "SharedRecord.onset_ns": "on the clock of the node that reported it, as in the incident that travels with it",
    "_CaptureFile.at_ns": "kept on the clock that the whole capture is on",
    "_TrainingFile.capture_at_ns": "names the capture that the file belongs to",
    "_RankLine.capture_at_ns": "names the capture that the line belongs to",
    "_StackLine.capture_at_ns": "names the capture that the line belongs to",
}

Leaf = tuple[type, str]


def fields_of(shape: type) -> dict[str, Any]:
    """The fields of a struct by name, with their types."""
    return {field.name: field.type for field in msgspec.structs.fields(shape)}


def parts(shape: Any) -> Iterator[Any]:
    """A type and all types inside it, structs not opened."""
    yield shape
    for inner in typing.get_args(shape) if typing.get_origin(shape) is not Literal else ():
        yield from parts(inner)


def reached(shape: type, found: set[type] | None = None) -> set[type]:
    """The structs within a struct, itself included."""
    found = set() if found is None else found
    if shape not in found:
        found.add(shape)
        for one in fields_of(shape).values():
            for part in parts(one):
                if isinstance(part, type) and issubclass(part, msgspec.Struct):
                    reached(part, found)
    return found


def filled(shape: Any, choice: int = 0) -> Any:
    """A value of a type with something in every field, each text holding the word. ``choice``: which type of a union."""
    origin, inner = typing.get_origin(shape), typing.get_args(shape)
    if origin in (typing.Union, UnionType):
        real = [one for one in inner if one is not NoneType]
        return filled(real[choice % len(real)], choice)
    if origin is Literal:
        return inner[0]
    if origin is tuple:
        return tuple(filled(one, choice) for one in inner if one is not Ellipsis)
    if origin is dict:
        key = "name" if inner[0] is str else 1
        return {key: filled(inner[1], choice)}
    if isinstance(shape, type) and issubclass(shape, msgspec.Struct):
        return shape(**{name: filled(one, choice) for name, one in fields_of(shape).items()})
    plain = {str: f"it said {WORD}", int: 5, float: 5.0, bool: True, bytes: (5).to_bytes(8, "little")}
    return plain[shape]


def leaves(value: Any, owner: type = object, field: str = "") -> Iterator[tuple[Leaf, Any]]:
    """All plain values within one, each with the struct and the field it is in."""
    if isinstance(value, msgspec.Struct):
        for name in fields_of(type(value)):
            yield from leaves(getattr(value, name), type(value), name)
    elif isinstance(value, (tuple, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from leaves(one, owner, field)
    else:
        yield (owner, field), value


def still_said(shape: type, hide: Callable[[Any], Any]) -> set[Leaf]:
    """The text fields within a struct that keep the word."""
    hidden = (hide(filled(shape, choice)) for choice in range(2))
    return {leaf for one in hidden for leaf, text in leaves(one) if isinstance(text, str) and WORD in text}


def unmoved(shape: type, move: Callable[[Any], Any]) -> set[Leaf]:
    """The times within a struct that stay as they are, and all that is no time and does not."""
    wrong = set()
    for choice in range(2):
        before = filled(shape, choice)
        pairs = zip(leaves(before), leaves(move(before)), strict=True)
        for (leaf, old), (_, new) in pairs:
            moved = leaf[1].endswith("_ns") or leaf[1] == "start_time"
            if moved != (old != new) or (moved and isinstance(old, int) and new - old != SECOND_NS):
                wrong.add(leaf)
    return wrong


class Later(RankCapture, frozen=True):
    """A capture's rank as a later version may have it: with fields that nothing else knows of."""

    remark: str = ""
    remarks: dict[str, tuple[str, ...]] | None = None
    remarked_at_ns: int | None = None


def hide(value: Any) -> Any:
    """What the agent does to a capture whose ranks know the word as a secret."""
    return hide_in(value, (WORD,))


def move(value: Any) -> Any:
    """What a leader does to the capture of a node whose clock is a second behind."""
    return shift(value, SECOND_NS)


def test_no_text_of_a_capture_keeps_a_secret_unless_it_is_listed_with_the_reason() -> None:
    """Planted in every text field of every struct; what keeps it is what the list says, and nothing else."""
    listed = {
        (owner, field) for owners, fields, _ in KEPT for owner, field in itertools.product(owners, fields.split())
    }
    assert still_said(Capture, hide) == listed
    assert all(reason for _, _, reason in KEPT)


def test_every_time_of_a_capture_moves_with_the_clock_and_nothing_else_does() -> None:
    """By name: every ``*_ns`` field, whether a number or a column, and the start of a process."""
    assert unmoved(Capture, move) == set()


def test_a_field_that_is_added_is_covered_and_one_that_is_not_is_found() -> None:
    """Text and time in a struct that nobody has listed; and without redaction and shifting these checks do fail."""
    assert {leaf for leaf in still_said(Later, hide) if leaf[0] is Later} == set()
    assert unmoved(Later, move) == set()
    assert {(Later, "remark"), (Later, "remarks")} <= still_said(Later, lambda value: value)
    assert (Later, "remarked_at_ns") in unmoved(Later, lambda value: value)


def structs_of_the_rooms() -> list[type]:
    """Every struct that these rooms define and a capture has not."""
    for room in ROOMS:
        module = importlib.import_module(room)
        for found in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{room}."):
            importlib.import_module(found.name)

    def below(shape: type) -> Iterator[type]:
        for one in shape.__subclasses__():
            yield one
            yield from below(one)

    within = reached(Capture)
    return [one for one in below(msgspec.Struct) if one.__module__.startswith(ROOMS) and one not in within]


def test_text_and_times_outside_a_capture_are_listed_with_the_reason() -> None:
    """A field that is added to an incident, a digest, a message, a bundle's file, or a metric has to be thought about."""
    text: dict[str, set[str]] = {}
    times = set()
    for shape in structs_of_the_rooms():
        for field, type_ in fields_of(shape).items():
            if any(part in (str, msgspec.Raw, Any, object) for part in parts(type_)):
                text.setdefault(shape.__name__, set()).add(field)
            if field.endswith("_ns"):
                times.add(f"{shape.__name__}.{field}")
    listed = {name: set(fields.split()) for name, (fields, _) in OTHER_TEXT.items()}
    assert text == listed
    assert times == set(OTHER_TIMES)


def test_what_cannot_be_walked_is_refused() -> None:
    """A list, or a field of any type at all, would hide what is in it from the walk: it is no silent exception."""

    class Loose(msgspec.Struct):
        """A struct that no walk can cover."""

        anything: list[str]

    with pytest.raises(TypeError, match=r"Loose\.anything"):
        compile_rewrite(Loose, lambda *_: True)
