"""A whole node is silent: its agent, its ranks and its host. Only agents that share what they see can know."""

from __future__ import annotations

from hangwatch.analysis.case import Case
from hangwatch.causes.evidence import at_front
from hangwatch.causes.match import Match
from hangwatch.model.capture import SilentNode
from hangwatch.model.incident import Evidence
from hangwatch.model.text import number_ranks


def node_lost(case: Case) -> Match | None:
    """Return a match if all culprits are on nodes of which nothing comes any more."""
    culprits = frozenset(case.blame.culprits)
    nodes = [node for node in case.capture.silent if not culprits.isdisjoint(node.ranks)]
    if not culprits or not culprits.issubset(rank for node in nodes for rank in node.ranks):
        return None
    evidence = tuple(e for node in nodes for e in _at_node(node))
    evidence += tuple(e for rank in case.blame.waiting[:1] for e in at_front(case, rank))
    names = " and ".join(node.node for node in nodes)
    whose = number_ranks({rank for node in nodes for rank in node.ranks})
    said = f"Nothing comes from node {names} any more, not even from its agent, and the others wait for {whose}."
    sure = all(node.answered_before for node in nodes)
    if not sure:
        said += " Whether the host is up is unknown: it never answered before, so a firewall may block the check."
    return Match("node-lost", "certain" if sure else "strong", said, evidence)


def _at_node(node: SilentNode) -> tuple[Evidence, ...]:
    before = "but did while its agent was there" if node.answered_before else "and has never answered"
    return (
        Evidence(None, "peer discovery", f"{node.node}: its agent has been silent for {node.silent_s:.0f} s"),
        Evidence(None, "network", f"{node.node}: its host does not answer at {node.address}, {before}"),
    )
