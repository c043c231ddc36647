"""Who is there, who is silent, who is of an earlier incarnation: by digests alone, whatever the clocks say."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.agent.fleet.member import name_channel
from hangwatch.agent.fleet.peers import FORGET_S, LEFT_S, SILENT_S, UNKNOWN_SILENT_S, Members
from hangwatch.model.digest import DIGEST_VERSION, Digest, DigestRank, encode_digest

MINUTES_NS = 7 * 60 * 10**9


def digest(
    node: str,
    ranks: Iterable[int],
    *,
    count: int = 1,
    age_s: float = 100.0,
    at_ns: int = 0,
    replaced_age_s: float | None = None,
    leaving: bool = False,
    state: str = "running",
) -> bytes:
    """A node's digest, its ranks so old."""
    entries = tuple(DigestRank(rank, 100 + rank, age_s, state) for rank in ranks)
    return encode_digest(
        Digest(DIGEST_VERSION, node, "agent", count, at_ns, "10.0.0.1", 4, entries, (), replaced_age_s, leaving)
    )


def owners(members: Members, now_s: float, own: dict[int, float] | None = None) -> dict[int, str]:
    """On which node each rank is."""
    return {rank: member.name for rank, (member, _) in members.ranks(now_s, own or {}).items()}


def test_silence_is_what_the_reader_observes() -> None:
    """A digest that does not change for long enough is of a silent agent, whatever time it bears; one that changes is not."""
    members = Members("me")
    members.update({"a": digest("a", [0]), "b": digest("b", [1])}, 10.0, 0)
    later_s = 10.0 + SILENT_S
    members.update({"a": digest("a", [0], count=2, at_ns=-MINUTES_NS), "b": digest("b", [1])}, later_s, 0)
    assert not members.members["a"].is_silent(later_s)
    assert members.members["b"].is_silent(later_s)


def test_a_host_that_never_answered_is_believed_lost_late() -> None:
    """A firewall looks just like it."""
    members = Members("me")
    members.update({"a": digest("a", [0])}, 0.0, 0)
    member = members.members["a"]
    member.answers = False
    assert not member.is_lost(SILENT_S + 1.0)
    assert member.is_lost(UNKNOWN_SILENT_S + 1.0)
    member.known_to_answer = True
    assert member.is_lost(SILENT_S + 1.0)
    member.answers = True
    assert not member.is_lost(UNKNOWN_SILENT_S + 1.0)


def test_one_that_cannot_be_read_is_set_aside_by_name() -> None:
    """Of a newer format, or broken: the others are read, and what is missing is said."""
    members = Members("me")
    newer = bytes([0x92, DIGEST_VERSION + 1, 1])
    members.update({"a": digest("a", [0]), "new": newer, "torn": b"\xc1"}, 0.0, 0)
    assert owners(members, 0.0) == {0: "a"}
    said = sorted(str(gap) for gap in members.gaps)
    assert "node new is in format" in said[0]
    assert "use the same hangwatch on all nodes" in said[0]
    assert "node torn is broken" in said[1]


@given(st.integers(-MINUTES_NS, MINUTES_NS), st.lists(st.integers(0, 900_000_000), min_size=1, max_size=20))
def test_how_far_a_clock_is_off_is_known_to_a_second(skew_ns: int, delays_ns: list[int]) -> None:
    """From digests that took up to a second to be read; clocks that agree are left alone."""
    members = Members("me")
    for number, delay_ns in enumerate(delays_ns):
        now_ns = 10**15 + number * 10**9
        members.update({"a": digest("a", [0], count=number, at_ns=now_ns - delay_ns - skew_ns)}, float(number), now_ns)
    offset_ns = members.members["a"].offset_ns
    if abs(skew_ns) > 3 * 10**9:
        assert abs(offset_ns - skew_ns) < 10**9
    elif abs(skew_ns) < 10**9:
        assert offset_ns == 0


def test_a_rank_that_moved_is_where_it_is_youngest() -> None:
    """Its former node says that it is gone, says nothing, or says nothing new: it is looked for where it lives."""
    members = Members("me")
    members.update({"old": digest("old", [0, 1]), "new": digest("new", [1], age_s=5.0)}, 0.0, 0)
    assert owners(members, 0.0) == {0: "old", 1: "new"}
    members.update({"old": digest("old", [0, 1], count=2, state="lost")}, 1.0, 0)
    assert owners(members, 1.0) == {0: "old", 1: "new"}
    assert owners(members, 1.0, own={0: 3.0}) == {1: "new"}
    assert owners(members, 1.0, own={1: 30.0}) == {0: "old", 1: "new"}


def test_a_rank_that_two_agents_of_a_node_see_is_not_elsewhere() -> None:
    """The node's agent and one of ``run`` claim it, and read its age at different moments: each takes it for its own."""
    members = Members("me")
    members.update({"other": digest("me", [0], age_s=100.0)}, 0.0, 0)
    for own_s in (99.5, 100.0, 100.5):
        assert owners(members, 0.0, own={0: own_s}) == {}


def test_what_was_there_before_a_restart_is_not_mixed_with_what_came_after() -> None:
    """A node whose processes are older than the end of another's predecessors is left out until it has restarted, too."""
    members = Members("me")
    members.update(
        {"done": digest("done", [0, 1], age_s=4.0, replaced_age_s=6.0), "late": digest("late", [2, 3], age_s=500.0)},
        0.0,
        0,
    )
    assert owners(members, 0.0) == {0: "done", 1: "done"}
    members.update({"late": digest("late", [2, 3], count=2, age_s=1.0, replaced_age_s=8.0)}, 3.0, 0)
    assert owners(members, 3.0) == {0: "done", 1: "done", 2: "late", 3: "late"}


def test_this_node_s_own_restart_counts_as_well() -> None:
    """What others have left of the incarnation before is not compared with the new ranks here."""
    members = Members("me")
    members.update(
        {"me": digest("me", [0], age_s=1.0, replaced_age_s=3.0), "late": digest("late", [1], age_s=50.0)}, 0.0, 0
    )
    assert owners(members, 0.0) == {}


def test_who_leaves_is_remembered_for_a_while() -> None:
    """Others may wait for its ranks; it is not silent, and it is forgotten in the end, as silent ones are."""
    members = Members("me")
    members.update({"a": digest("a", [0], leaving=True), "b": digest("b", [1])}, 0.0, 0)
    assert not members.members["a"].is_silent(SILENT_S + 1.0)
    members.update({}, LEFT_S + 1.0, 0)
    assert set(members.members) == {"b"}
    members.update({}, FORGET_S + 1.0, 0)
    assert members.members == {}


@pytest.mark.parametrize(
    "other",
    [
        ("job", "10.0.0.2:29500", 8),
        ("job", "10.0.0.1:29501", 8),
        ("job", "10.0.0.1:29500", 4),
        ("jo/b", "10.0.0.1:29500", 8),
    ],
)
def test_jobs_and_incarnations_have_channels_of_their_own(other: tuple[str, str, int]) -> None:
    """Another meeting place, another world size, another name, and one that only looks alike once it is written as a key."""
    assert name_channel("job", "10.0.0.1:29500", 8) != name_channel(*other)
    assert name_channel("jo-b", "10.0.0.1:29500", 8) != name_channel("jo/b", "10.0.0.1:29500", 8)
