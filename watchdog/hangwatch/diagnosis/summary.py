"""A verdict in one sentence. Pure."""

from __future__ import annotations

from hangwatch.analysis.case import Case
from hangwatch.model.incident import Cause, Kind
from hangwatch.model.text import format_ranks


def summarize(case: Case, kind: Kind, cause: Cause) -> str:
    """Who waits in which operation, because of whom, and why."""
    blame = case.blame
    where = _where(case)
    title = cause.title[0].lower() + cause.title[1:]
    if blame.shape == "outside":
        return f"{_who_waits(blame.waiting)} in {where}, in the end {_whom_outside(case)}."
    if not blame.culprits and case.operation is None:
        return f"{_who_waits(blame.waiting)} in {where} and nothing moves; in which groups could not be seen."
    if not blame.culprits:
        return f"All of {_who(blame.waiting)} joined {where} and nothing completes: {title}."
    holders = _who(blame.culprits)
    if blame.shape == "blocked":
        return f"All of {holders} are stuck, in no collective: {title}."
    if blame.shape == "lingering":
        return f"The job does not end: all but {holders} stay at the end of their program, waiting for none: {title}."
    if blame.shape == "left_over":
        ended = "most ranks of its group have ended without an error"
        return f"{_who_waits(blame.culprits)} in {where}, and {ended}: {title}."
    if not blame.waiting:
        return f"{holders[0].upper()}{holders[1:]} wait for each other in {where}: {title}."
    verb = {"deadlock": "can never get past", "straggler": "are waiting in"}.get(kind, "are blocked in")
    waiting = _who(blame.waiting)
    if len(blame.waiting) == 1:
        verb = verb.replace("are", "is", 1)
    return f"{waiting[0].upper()}{waiting[1:]} {verb} {where} because of {holders}: {title}."


def summarize_healthy(case: Case) -> str:
    """Why a job that waits is taken to be well."""
    if case.blame.waiting and case.idleness is not None:
        seems = "seems to await" if case.idleness == "likely" else "awaits"
        return (
            f"No hang found: {_who(case.blame.culprits)} {seems} work from outside, and the others their next command."
        )
    if not any(view.capture.processes or view.frames for view in case.views.values()):
        return (
            "No hang found in what is recorded: nothing is in flight. Where the ranks are outside of recorded operations, or in "
            "a first collective, it does not show."
        )
    return "No hang found: every rank moves or waits for no longer than is ordinary."


def _who(ranks: tuple[int, ...]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {format_ranks(ranks)}"


def _who_waits(ranks: tuple[int, ...]) -> str:
    return f"{_who(ranks).capitalize()} {'wait' if len(ranks) > 1 else 'waits'}"


def _whom_outside(case: Case) -> str:
    """Whom the waiting leads to: who has a place that no rank of the job says it has, or is to set a key of a store."""
    edges = case.graph.leaving
    ranks = tuple(sorted({r for e in edges for r in e.waiters}))
    who = _who(ranks)
    if edges[0].reason == "key":
        at = next((f"the store at {v.store}" for r in ranks if (v := case.views[r]).store is not None), "a store")
        return f"for a key of {at}, or its host: {who} cannot go on, and who is to set it could not be seen"
    labels = dict.fromkeys(e.operation.group.label for e in edges if e.operation is not None)
    groups = f" of {' and '.join(labels)}" if labels else ""
    return f"for a member{groups} that no rank of this job says it is: {who} cannot go on, and it is not visible here"


def _where(case: Case) -> str:
    """The operations that the ranks concerned are in, the first two of them."""
    ranks = [r for r in case.blame.waiting or case.blame.culprits if r in case.views]
    names = []
    for view in (case.views[r] for r in ranks):
        if view.frontier is not None:
            names.append(f"{view.frontier.op} of {view.frontier.group.label}")
        elif view.wait is not None:
            names.append(view.wait.op)
        elif view.in_request:
            names.append("a request")
    return " and ".join(list(dict.fromkeys(names))[:2]) or "a wait for other ranks"
