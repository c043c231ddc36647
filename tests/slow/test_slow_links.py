"""Whose links are slower than the rest, by what TCP counts; and TCP's own count, of a real connection."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Mapping

import pytest

from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture, Job
from hangwatch.model.slowness import SlowLink, Traffic
from hangwatch.slow.links import find_slow_link
from hangwatch.sources.connections.transfers import LinkMeter, parse_tcp_diag, read_connections

FULL, FAST = 8_000_000, 900_000_000


def ring(
    busy: Mapping[int, float],
    size: int = 4,
    sent: Mapping[int, int] | None = None,
    slow: Mapping[int, int] | None = None,
    again: Mapping[int, int] | None = None,
) -> dict[str, list[Traffic]]:
    """What each node sends to the next one, with small answers, whose end is acknowledged late.

    ``slow``: unusual rates; ``again``: what is repeated.
    """
    rates = dict.fromkeys(busy, FULL) if slow is None else slow
    return {
        f"n{n}": [
            Traffic(
                f"10.0.0.{n}",
                f"10.0.0.{(n + 1) % size}",
                busy.get(n, 0.03),
                (sent or {}).get(n, FULL),
                rates.get(n, FAST),
                (again or {}).get(n, 0),
            ),
            Traffic(f"10.0.0.{n}", f"10.0.0.{(n - 1) % size}", 0.4, 2_000, 50_000, 0),
        ]
        for n in range(size)
    }


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        (ring({}), None),
        # As seen on three hosts, with the card of n2 limited on its way out: what n0 sends is acknowledged late, too.
        (ring({2: 0.67, 1: 0.4}, 3, slow={2: FULL}), SlowLink(("n2",), 0.4, 0.03)),
        (ring({1: 0.5, 2: 0.6}), SlowLink(("n2",), 0.5, 0.03)),
        (ring({1: 0.5}), SlowLink(("n1", "n2"), 0.5, 0.03)),
        (ring({1: 0.5, 3: 0.5}), None),  # two links without a common node
        (ring({0: 0.5, 1: 0.6, 2: 0.6, 3: 0.7}), None),  # all: the job sends much
        (ring({1: 0.5, 2: 0.6, 3: 0.2}), None),  # no clear difference
        (ring({0: 0.1, 1: 0.13, 2: 0.26}, 3), None),  # as seen on three healthy hosts
        (ring({1: 0.15}), None),  # too little to matter
        (ring({1: 0.5}, slow={}), None),  # the ends of its messages are acknowledged late
        (
            ring({1: 0.65}, slow={}, again={1: FULL // 10}),
            SlowLink(("n1", "n2"), 0.65, 0.03, 0.1),
        ),  # a card that loses data
        (ring({1: 0.65}, slow={}, again=dict.fromkeys(range(4), FULL // 50)), None),  # all lose some
        (ring({1: 0.6}, sent={1: 3 * FULL}), None),  # it has more to carry
        (ring({1: 0.6}, sent=dict.fromkeys(range(4), 5_000)), None),  # small messages are acknowledged late
        (ring({1: 0.6}, 2), None),  # one pair of nodes cannot be compared
        ({}, None),
    ],
)
def test_whose_links_are_slow(nodes: dict[str, list[Traffic]], found: SlowLink | None) -> None:
    """All those of one node, or one alone, if the others are much faster and carry as much."""
    assert find_slow_link(nodes) == found


def test_the_node_that_gathers_is_busy_by_design() -> None:
    """Its links carry more than any other."""
    hub = {f"n{n}": [Traffic(f"10.0.0.{n}", "10.0.0.0", 0.6, FULL, FULL, 0)] for n in range(1, 4)}
    hub["n0"] = [Traffic("10.0.0.0", f"10.0.0.{n}", 0.01, 1_000, FAST, 0) for n in range(1, 4)]
    assert find_slow_link(hub) is None


def test_the_verdict() -> None:
    """A warning that accuses no rank."""
    verdict = diagnose(Capture(Job("job", 4), 5, (), slow=SlowLink(("n1", "n2"), 0.5, 0.03))).verdict
    assert (verdict.kind, verdict.severity, verdict.proven, verdict.culprit_ranks) == ("slow", "warning", False, ())
    assert verdict.summary == (
        "The network is slower on the link between n1 and n2 than between the other nodes of the job."
    )
    assert verdict.cause is not None
    assert (verdict.cause.id, "50% of the time" in verdict.cause.explanation) == ("slow-link", True)


@pytest.mark.usefixtures("real")
def test_what_the_kernel_counts() -> None:
    """Of a connection whose other end does not read: what has arrived, and no time in which the network is to blame."""
    meter = LinkMeter()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        other, _ = server.accept()
        with other:
            inode = os.fstat(client.fileno()).st_ino
            assert meter.look([os.getpid()]) == ()
            client.setblocking(False)
            sent = 0
            while True:  # until both ends are full
                try:
                    sent += client.send(bytes(1 << 16))
                except BlockingIOError:
                    break
            (own,) = [one for one in read_connections() if one.inode == inode]
            assert (own.local, own.remote) == ("127.0.0.1", "127.0.0.1")
            assert 0 < own.sent <= sent
            assert own.busy_s < 1
            assert meter.look([os.getpid()]) == ()  # both ends are on this host


def test_an_answer_without_the_times() -> None:
    """Of a kernel before 4.9, or one that is cut."""
    head = struct.pack("=BBBB", socket.AF_INET, 1, 0, 0) + bytes(68)
    assert parse_tcp_diag(head[:40]) is None
    assert parse_tcp_diag(head) is None
    assert parse_tcp_diag(head + struct.pack("=HH", 4 + 168, 2) + bytes(168)) is None
    whole = parse_tcp_diag(
        head + struct.pack("=HH", 4 + 184, 2) + bytes(160) + struct.pack("=QQQ", 5, 3_000_000, 1_000_000)
    )
    assert whole is not None
    assert (whole.rate, whole.busy_s, whole.repeated) == (5, 2.0, 0)
    newer = parse_tcp_diag(head + struct.pack("=HH", 4 + 216, 2) + bytes(208) + struct.pack("=Q", 9))
    assert newer is not None
    assert newer.repeated == 9
