"""Ranks that do not get to the store at which all meet."""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch.analysis.case import Case
from hangwatch.causes.evidence import at_front, at_process, at_stack
from hangwatch.causes.signature import Match, Signature
from hangwatch.model.incident import Evidence
from hangwatch.model.text import format_ranks

#: It is in initialization, as the others are, and has not got to them.
CONNECTING = Signature("store-unreachable", "connecting", "strong", beats=("init-missing-rank", "blocked-io"))
#: Where it looks for the store is not where another rank has it.
OTHER_PORT = Signature("store-unreachable", "other-port", "certain", beats=("init-missing-rank", "blocked-io"))
#: Nobody has it, at any of the addresses at which they look for it.
ALL_CONNECTING = Signature("store-unreachable", "all-connecting", "strong", beats=("collective-mismatch",))

#: Of how many ranks the evidence is shown.
_SHOWN = 3


def store_unreachable(case: Case) -> Match | None:
    """Ranks still try to connect to the store, while another one is past that, or has it."""
    waits = {r: v.wait for r, v in case.views.items() if v.wait is not None and v.wait.kind == "initialization"}
    connecting = [r for r in sorted(waits) if waits[r].connecting]
    waiting = [r for r in sorted(waits) if not waits[r].connecting]
    culprits = set(case.blame.culprits)
    if connecting and not waiting and not culprits and set(case.blame.waiting) <= set(connecting):
        said = "All ranks seen still try to connect to the store at which they meet, in init_process_group."
        return Match(ALL_CONNECTING, said, _at_connecting(case, connecting))
    # The smaller side is named: it may be the host that is where nobody looks for it.
    if not connecting or not waiting or not culprits or not (culprits >= set(connecting) or culprits <= set(waiting)):
        return None
    if not culprits <= waits.keys():
        return None
    tries = case.views[connecting[0]].meets_at
    there = case.views[waiting[0]].meets_at
    evidence = _at_connecting(case, connecting)
    if there is not None:
        evidence += (Evidence(waiting[0], "process", f"meets the others at port {there}"),)
    evidence += at_front(case, waiting[0])
    who = f"Rank {format_ranks(connecting)}" if len(connecting) == 1 else f"Ranks {format_ranks(connecting)}"
    verb = "tries" if len(connecting) == 1 else "try"
    said = f"{who} still {verb} to connect to the store at which the ranks meet, in init_process_group."
    if None not in (tries, there) and tries != there:
        said = f"{said[:-1]}: at port {tries}, while rank {waiting[0]} meets the others at port {there}."
        return Match(OTHER_PORT, said, evidence)
    return Match(CONNECTING, said, evidence)


def _at_connecting(case: Case, ranks: Sequence[int]) -> tuple[Evidence, ...]:
    evidence: tuple[Evidence, ...] = ()
    for rank in ranks[:_SHOWN]:
        evidence += (*at_stack(case, rank), *at_process(case, rank))
        port = case.views[rank].meets_at
        evidence += (Evidence(rank, "stack", f"tries to connect to a store at port {port}"),) if port else ()
    return evidence
