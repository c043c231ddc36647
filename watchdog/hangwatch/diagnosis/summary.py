"""A verdict in one sentence. Pure."""

from __future__ import annotations

from hangwatch.analysis.case import Case
from hangwatch.analysis.places import user_frame, where
from hangwatch.model.incident import Cause, Kind
from hangwatch.model.text import format_ranks


def summarize(case: Case, kind: Kind, cause: Cause) -> str:
    """Return who waits in which operation, because of whom, and why if a known cause fits, in one sentence."""
    blame = case.blame
    place = _where(case)
    why = f": {in_a_sentence(cause.title)}" if cause.id != "unknown" else ""
    if blame.shape == "outside":
        return f"{_who_waits(blame.waiting)} in {place}: {_whom_outside(case)}."
    if not blame.culprits and case.operation is None:
        return f"{_who_waits(blame.waiting)} in {place}, and nothing moves. hangwatch could not see their groups."
    if not blame.culprits:
        have = "have all" if len(blame.waiting) > 1 else "has"
        return (
            f"{list_ranks(blame.waiting).capitalize()} {have} joined {place}, but the operation does not complete{why}."
        )
    holders = list_ranks(blame.culprits)
    if blame.shape == "blocked":
        are = "are" if len(blame.culprits) > 1 else "is"
        return f"{holders.capitalize()} {are} stuck outside of any collective{why}."
    if blame.shape == "lingering":
        return f"The job does not end because of {holders}{why}. The other ranks are at the end of their program."
    if blame.shape == "left_over":
        ended = "but most ranks of the group have ended without an error"
        return f"{_who_waits(blame.culprits)} in {place}, {ended}{why}."
    if not blame.waiting:
        return f"{holders.capitalize()} wait for each other in {place}{why}."
    verb = {"deadlock": "can never get past", "straggler": "are waiting in"}.get(kind, "are blocked in")
    waiting = list_ranks(blame.waiting)
    if len(blame.waiting) == 1:
        verb = verb.replace("are", "is", 1)
    if cause.id == "unknown" and not any(r in case.views for r in blame.culprits):
        return f"{waiting.capitalize()} {verb} {place}, and nothing is known of {holders}."
    return f"{waiting.capitalize()} {verb} {place} because of {holders}{why}."


def summarize_healthy(case: Case) -> str:
    """Return why a job that waits is taken to be well."""
    if case.blame.waiting and case.idleness is not None:
        asked = list_ranks(case.blame.culprits)
        probably = "probably " if case.idleness == "likely" else ""
        return f"No hang found: {asked} {probably}{_verb(case.blame.culprits)} for a request, and the other ranks for a command."
    if not any(view.capture.processes or view.frames for view in case.views.values()):
        pending = next((view.frontier for view in case.views.values() if view.frontier is not None), None)
        if pending is not None:
            return (
                f"No hang found: {pending.op} of {pending.group.label} (sequence number {pending.seq}) may be in progress. The "
                "records do not show that all its ranks have been in it for long. Dump again in a minute: if the number is the "
                "same, the job hangs."
            )
        return (
            "No hang found: the records show no operation in flight. They do not show the first collective of a rank, or what "
            "a rank does outside of operations."
        )
    still = [view for view in case.views.values() if view.motion.state == "stuck"]
    own = user_frame(still[0].frames) if len(still) == len(case.views) > 0 else None
    if own is not None and not case.blame.waiting:
        return f"No hang found: no rank waits for another. But nothing moves: rank {still[0].rank} is in {where(own)}."
    return "No hang found: every rank moves, or has not waited longer than usual."


def in_a_sentence(title: str) -> str:
    """Return a cause's title as it reads behind a colon: a name keeps its capitals."""
    return title if title[1:2].isupper() else title[0].lower() + title[1:]


def list_ranks(ranks: tuple[int, ...]) -> str:
    """Return ``rank 3`` or ``ranks 0-2,5``; a summary names every rank, however many there are."""
    return f"rank{'s' if len(ranks) > 1 else ''} {format_ranks(ranks)}"


def _who_waits(ranks: tuple[int, ...]) -> str:
    return f"{list_ranks(ranks).capitalize()} {_verb(ranks)}"


def _verb(ranks: tuple[int, ...]) -> str:
    return "wait" if len(ranks) > 1 else "waits"


def _whom_outside(case: Case) -> str:
    """Return for whom the ranks wait: for a member of a group that no seen process claims to be, or for a key of a store."""
    edges = case.graph.leaving
    ranks = tuple(sorted({r for e in edges for r in e.waiters}))
    who = list_ranks(ranks)
    if edges[0].reason == "key":
        at = next((f"the store at {v.store}" for r in ranks if (v := case.views[r]).store is not None), "a store")
        return (
            f"{who} {_verb(ranks)} for a key of {at}, or for its host, and hangwatch cannot see who should set the key"
        )
    labels = dict.fromkeys(e.operation.group.label for e in edges if e.operation is not None)
    groups = f" of {' and '.join(labels)}" if labels else ""
    return f"{who} {_verb(ranks)} for a member{groups}, and no process that hangwatch sees has that place"


def _where(case: Case) -> str:
    """Return the first two different operations that the ranks concerned are in."""
    ranks = [r for r in case.blame.waiting or case.blame.culprits if r in case.views]
    names = []
    for view in (case.views[r] for r in ranks):
        if view.frontier is not None:
            names.append(f"{view.frontier.op} of {view.frontier.group.label}")
        elif view.wait is not None:
            names.append("a store read" if view.wait.kind == "store" else view.wait.op)
        elif view.in_request:
            names.append("a request")
    return " and ".join(list(dict.fromkeys(names))[:2]) or "a wait for other ranks"
