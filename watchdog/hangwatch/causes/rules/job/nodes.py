"""A whole node is silent: its agent, its ranks and its host. Only agents that share what they see can know."""

from __future__ import annotations

from hangwatch.analysis.case import Case
from hangwatch.causes.evidence import at_front
from hangwatch.causes.signature import Match, Signature
from hangwatch.model.capture import SilentNode
from hangwatch.model.incident import Evidence
from hangwatch.model.text import format_ranks

#: Why its ranks are not there.
SILENT = Signature("node-lost", "silent", "certain", beats=("init-missing-rank",))
#: Its host never answered: one behind a firewall never does.
SILENT_BEHIND_FIREWALL = Signature("node-lost", "silent-never-answered", "strong")


def node_lost(case: Case) -> Match | None:
    """All to blame are on nodes of which nothing comes any more."""
    culprits = frozenset(case.blame.culprits)
    nodes = [node for node in case.capture.silent if not culprits.isdisjoint(node.ranks)]
    if not culprits or not culprits.issubset(rank for node in nodes for rank in node.ranks):
        return None
    evidence = tuple(e for node in nodes for e in _at_node(node))
    evidence += tuple(e for rank in case.blame.waiting[:1] for e in at_front(case, rank))
    names = " and ".join(node.node for node in nodes)
    whose = format_ranks(tuple(sorted(rank for node in nodes for rank in node.ranks)))
    said = f"Nothing comes from node {names} any more: not from its agent, and the others wait for its ranks {whose}."
    sure = all(node.answered_before for node in nodes)
    if not sure:
        said += " Whether its host is up is not known: it never answered, so a firewall may be in the way."
    return Match(SILENT if sure else SILENT_BEHIND_FIREWALL, said, evidence)


def _at_node(node: SilentNode) -> tuple[Evidence, ...]:
    before = "and did while its agent was there" if node.answered_before else "and has not been known to"
    return (
        Evidence(None, "exchange", f"{node.node}: its agent has been silent for {node.silent_s:.0f} s"),
        Evidence(None, "network", f"{node.node}: its host does not answer at {node.address}, {before}"),
    )
