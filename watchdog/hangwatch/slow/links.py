"""Finds the node, or the pair of nodes, whose network is slower than that of the rest of the job. Pure.

TCP counts for how long data that was sent is not acknowledged. Where the network is fast that is a small part of the time. A link
that carries more than others, as in a pipeline or to the one rank that gathers, may be busier by design: only links that carry
about as much are compared, by the way on which they carry more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from hangwatch.model.slowness import SlowLink, Traffic

#: Data has to wait for this share of the time. On healthy links of three hosts it was 0.26 once, mostly 0.1 or less.
_LEAST = 0.3
#: On any other link it waits for this part of that at most.
_OTHERS = 0.25
#: ... and on one of the slow links data arrives at this part of the others' rate at most: a late acknowledgement counts as
#: waiting, too. On the way to a card that is slow outwards, acknowledgements alone are slow.
_SLOWER = 0.5
#: ... or this share of it has to be sent again, where data gets lost. A network without a fault loses much less.
_LOSSY = 0.01
#: Links are compared if they carry this part of what the fullest one does.
_ALIKE = 0.5
#: Bytes a second. The end of a message may be acknowledged 40 ms late: small ones seem to wait all the time.
_LEAST_SENT = 1_000_000


def find_slow_link(nodes: Mapping[str, Sequence[Traffic]]) -> SlowLink | None:
    """Return the slow links, from what each node sends; None if no link is slow, or if there is too little to compare."""
    of = {link.local: node for node, links in nodes.items() for link in links}
    ways: dict[frozenset[str], list[Traffic]] = defaultdict(list)
    for node, links in nodes.items():
        for link in links:
            ways[frozenset({node, of.get(link.remote, node)})].append(link)
    carried = {pair: max(links, key=lambda link: link.sent) for pair, links in ways.items() if len(pair) == 2}
    most = max((link.sent for link in carried.values()), default=0)
    alike = {pair: link for pair, link in carried.items() if link.sent >= max(_ALIKE * most, _LEAST_SENT)}
    slow = {pair: link for pair, link in alike.items() if link.busy >= _LEAST}
    usual = {pair: link for pair, link in alike.items() if pair not in slow}
    if not slow or not usual:
        return None
    least, others = min(link.busy for link in slow.values()), max(link.busy for link in usual.values())
    slower = min(link.rate for link in slow.values()) <= _SLOWER * min(link.rate for link in usual.values())
    repeated, usually = (max(link.repeated / link.sent for link in links.values()) for links in (slow, usual))
    lossy = repeated >= _LOSSY and usually <= _OTHERS * repeated
    common = frozenset.intersection(*slow)
    # All links of one node, or one alone.
    alone = len(slow) == 1 or (len(common) == 1 and not any(common <= pair for pair in usual))
    if not (alone and (slower or lossy) and others <= _OTHERS * least):
        return None
    return SlowLink(tuple(sorted(common)), least, others, round(repeated, 3) if lossy else 0.0)


def name_link(found: SlowLink) -> str:
    """Return the links in words."""
    return f"the link between {' and '.join(found.nodes)}" if len(found.nodes) > 1 else f"the links of {found.nodes[0]}"
