"""Captures on their way between nodes: every recorded one arrives as it was sent, and what is broken is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangwatch.agent.fleet.wire import WIRE_VERSION, Answer, LeaseNotice, decode, encode
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture, Job, RankCapture, RankIdentity
from hangwatch.model.collectives import Group, GroupProgress
from hangwatch.model.transforms.clocks import shift
from hangwatch.model.transforms.packing import Commons, Packed, pack, unpack
from hangwatch.model.transforms.published import PublishedError

sys.path.append(str(Path(__file__).resolve().parent.parent / "causes"))
from recorded import NAMES, load


@pytest.mark.parametrize("name", NAMES)
def test_a_capture_arrives_as_it_was_sent(name: str) -> None:
    """Packed, compressed, and unpacked beside others."""
    capture = load(name)
    sent = encode(Answer(WIRE_VERSION, "q", pack(capture)))
    commons = Commons()
    for _ in range(2):
        assert unpack(decode(sent, Answer).packed, commons) == capture


@pytest.mark.parametrize("name", NAMES)
def test_a_clock_that_differs_changes_no_verdict(name: str) -> None:
    """The same hang as seen by a clock that is five minutes off."""
    assert diagnose(shift(load(name), 300 * 10**9)).verdict == diagnose(load(name)).verdict


def test_a_large_group_is_sent_once() -> None:
    """Eight ranks of a world of 8,192 are not 8 times 8,192 numbers."""
    groups = [
        Group("0", tuple(range(8192)), "default_pg"),
        Group("1", tuple(range(3, 8192, 8)), "dp"),
        Group("2", (0, 1, 5)),
    ]
    progress = tuple(GroupProgress(group, 7, -1, 6) for group in groups)
    ranks = tuple(RankCapture(RankIdentity(rank, rank + 1, 1.0), progress=progress) for rank in range(8))
    capture = Capture(Job("j", 8192), 1, ranks)
    sent = encode(Answer(WIRE_VERSION, "q", pack(capture)))
    assert len(sent) < 2000
    assert unpack(decode(sent, Answer).packed) == capture


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_a_damaged_capture_is_refused_in_our_own_terms(data: st.DataObject) -> None:
    """Whatever has happened to it on its way, it is a capture or a reason."""
    whole = bytearray(msgspec.msgpack.encode(Answer(WIRE_VERSION, "q", pack(load("killed")))))
    for _ in range(data.draw(st.integers(1, 5))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = msgspec.msgpack.decode(bytes(whole), type=Answer)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return
    try:
        assert isinstance(unpack(found.packed), Capture)
    except ValueError:
        assert isinstance(found.packed, Packed)


@given(st.binary(max_size=100))
def test_what_is_no_message_is_refused(data: bytes) -> None:
    """Random bytes are none."""
    with pytest.raises(PublishedError, match="is broken"):
        decode(data, LeaseNotice)


def test_a_newer_message_is_refused_by_its_number() -> None:
    """As a later version may send it."""
    with pytest.raises(PublishedError, match=f"is in format {WIRE_VERSION + 1}"):
        decode(encode(LeaseNotice(WIRE_VERSION + 1, "me")), LeaseNotice)
