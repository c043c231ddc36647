"""The digest on the wire: nothing is lost, and whatever else comes is refused by name."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.agent.fleet.digests import Writer, digest_progress, make_digest
from hangwatch.model.beats import Beat, BeatGroup
from hangwatch.model.capture import RankIdentity
from hangwatch.model.collectives import Group
from hangwatch.model.digest import (
    DIGEST_VERSION,
    Digest,
    DigestGroup,
    DigestProgress,
    DigestRank,
    encode_digest,
    parse_digest,
)
from hangwatch.model.progress import read_progress
from hangwatch.model.transforms.published import PublishedError

_TEXT = st.text(max_size=40)
_COUNT = st.integers(-1, 2**62)
_AGE = st.floats(0, 1e9)


@st.composite
def digests(draw: st.DrawFn) -> Digest:
    """Any digest that can be written."""
    groups = tuple(draw(st.lists(st.builds(DigestGroup, _TEXT, _TEXT), max_size=4)))
    progress = st.builds(DigestProgress, st.integers(0, max(0, len(groups) - 1)), _COUNT, _COUNT, _AGE)
    rank = st.builds(
        DigestRank, st.integers(0, 2**20), st.integers(1, 2**22), _AGE, _TEXT,
        st.lists(progress, max_size=4 if groups else 0).map(tuple), st.none() | st.integers(0, 63), st.integers(0, 99),
        _TEXT, st.binary(max_size=8), _TEXT, st.none() | _AGE,
    )  # fmt: skip
    return Digest(
        DIGEST_VERSION, draw(_TEXT), draw(_TEXT), draw(_COUNT), draw(_COUNT), draw(_TEXT),
        draw(st.none() | st.integers(1, 2**20)), tuple(draw(st.lists(rank, max_size=9))), groups,
        draw(st.none() | _AGE), draw(st.booleans()),
    )  # fmt: skip


@given(digests())
def test_what_was_written_is_read(digest: Digest) -> None:
    """Every value comes back as it was."""
    assert parse_digest(encode_digest(digest)) == digest


@given(st.binary(max_size=200))
def test_anything_else_is_refused_in_our_own_terms(data: bytes) -> None:
    """Random bytes are a digest or a reason, and nothing but that."""
    try:
        parse_digest(data)
    except PublishedError as error:
        assert str(error).startswith(("is broken", "is in format"))  # noqa: PT017  # either is right


@given(digests(), st.data())
def test_a_damaged_one_is_refused_in_our_own_terms(digest: Digest, data: st.DataObject) -> None:
    """Cut off or with bytes changed, it is another digest or a reason."""
    whole = bytearray(encode_digest(digest))
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    for _ in range(data.draw(st.integers(0, 3))):
        if cut:
            cut[data.draw(st.integers(0, len(cut) - 1))] = data.draw(st.integers(0, 255))
    try:
        parse_digest(bytes(cut))
    except PublishedError as error:
        assert str(error).startswith(("is broken", "is in format"))  # noqa: PT017  # either is right


@given(digests())
def test_a_newer_format_is_refused_by_its_number(digest: Digest) -> None:
    """Whatever a newer one has in it, the number says that it is newer."""
    newer = msgspec.msgpack.encode([DIGEST_VERSION + 1, {"all": "new"}, *msgspec.to_builtins(digest)[1:]])
    with pytest.raises(PublishedError, match=f"is in format {DIGEST_VERSION + 1}, but this version"):
        parse_digest(newer)


def test_fields_of_a_later_version_are_no_hindrance() -> None:
    """A field more at the end, as a later version of the same format may have it, is not looked at."""
    digest = Digest(DIGEST_VERSION, "a", "x", 1, 2, "", 8, (), ())
    longer = msgspec.msgpack.encode([*msgspec.to_builtins(digest), "more"])
    assert parse_digest(longer) == digest


def test_eight_ranks_are_a_few_kilobytes() -> None:
    """A node of 8 ranks in 6 groups each, in a world of 8,192, with everything that a look adds."""
    world = tuple(range(8192))
    keys = [Group(str(number), world[: 8192 >> number]).key for number in range(6)]
    progress = tuple(DigestProgress(number, 1_234_567, 1_234_566, 123.4) for number in range(6))
    ranks = tuple(
        DigestRank(8184 + local, 1_234_567 + local, 12345.6, "communicating", progress, local, 3, "stuck",
                   b"12345678", "all_gather", 0.5)
        for local in range(8)
    )  # fmt: skip
    groups = tuple(DigestGroup(key, "mesh_default_group") for key in keys)
    digest = Digest(
        DIGEST_VERSION, "gpu-node-1023.example", "0123456789abcdef", 99999, 2**60, "10.0.255.254", 8192, ranks, groups
    )
    assert len(encode_digest(digest)) < 3000


@given(st.lists(st.tuples(_COUNT, _COUNT, st.integers(0, 10**6)), max_size=4))
def test_another_node_knows_the_same_progress(numbers: list[tuple[int, int, int]]) -> None:
    """What a beat says of a rank, and what its digest does elsewhere: the same numbers, in flight for as long."""
    groups = tuple(
        BeatGroup(str(n), (0, 1), n, f"g{n}", "nccl", enqueued, -1, completed, unmoved_s)
        for n, (enqueued, completed, unmoved_s) in enumerate(numbers)
    )
    beat = Beat(1, 7, 1, 1, 10**9, rank=0, world_size=2, groups=groups)
    here = read_progress(0, beat, 3 * 10**9, 2)
    ranks = {0: RankIdentity(0, 7, 0.0)}
    digest = make_digest(
        Writer("a", "x"), count=1, world_size=2, ranks=ranks, lost=(), beats={7: beat}, now_ns=3 * 10**9
    )
    there = digest_progress(digest, digest.ranks[0])
    assert there.in_flight == here.in_flight
    assert there.counters == here.counters
    assert [one.label for one in there.groups] == [one.label for one in here.groups]
    assert there.age_s == here.age_s == 2.0
