"""Ranks that do not get to the store at which all meet."""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch.analysis.case import Case
from hangwatch.causes.evidence import at_front, at_process, at_stack
from hangwatch.causes.match import Match
from hangwatch.model.incident import Evidence
from hangwatch.model.text import ranks_do

#: How many ranks are shown as evidence.
_SHOWN = 3


def store_unreachable(case: Case) -> Match | None:
    """Return a match if ranks still try to connect to the store, while another one is past that, or hosts it."""
    waits = {r: v.wait for r, v in case.views.items() if v.wait is not None and v.wait.kind == "initialization"}
    connecting = [r for r in sorted(waits) if waits[r].connecting]
    waiting = [r for r in sorted(waits) if not waits[r].connecting]
    culprits = set(case.blame.culprits)
    if connecting and not waiting and not culprits and set(case.blame.waiting) <= set(connecting):
        said = "All visible ranks still try to connect to the store where they meet, in init_process_group."
        return Match("store-unreachable", "strong", said, _at_connecting(case, connecting))
    # The culprits are the smaller side, which may be the host of a store that nobody looks for there.
    if not connecting or not waiting or not culprits or not (culprits >= set(connecting) or culprits <= set(waiting)):
        return None
    if not culprits <= waits.keys():
        return None
    tries = case.views[connecting[0]].meets_at
    there = case.views[waiting[0]].meets_at
    evidence = _at_connecting(case, connecting)
    if there is not None:
        evidence += (Evidence(waiting[0], "process", f"uses port {there} to meet the others"),)
    evidence += at_front(case, waiting[0])
    who = ranks_do(connecting, "still tries", "still try").capitalize()
    said = f"{who} to connect to the store where the ranks meet, in init_process_group."
    if None not in (tries, there) and tries != there:
        said = f"{said[:-1]}: at port {tries}, while rank {waiting[0]} uses port {there}."
        return Match("store-unreachable", "certain", said, evidence)
    return Match("store-unreachable", "strong", said, evidence)


def _at_connecting(case: Case, ranks: Sequence[int]) -> tuple[Evidence, ...]:
    evidence: tuple[Evidence, ...] = ()
    for rank in ranks[:_SHOWN]:
        evidence += (*at_stack(case, rank), *at_process(case, rank))
        port = case.views[rank].meets_at
        evidence += (Evidence(rank, "stack", f"tries to connect to a store at port {port}"),) if port else ()
    return evidence
