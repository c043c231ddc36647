"""The kind of an engine's hang, and what its verdict says: demand, progress, and who holds it up. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch.analysis.case import Case
from hangwatch.analysis.patience import BUSY_FACTOR, BUSY_FLOOR_S, Patience
from hangwatch.analysis.ranks.requests import find_awaiting
from hangwatch.causes.match import Match
from hangwatch.model.incident import HANG_KINDS, Cause, Kind
from hangwatch.model.serving import EngineState
from hangwatch.model.text import number_ranks
from hangwatch.serving.analysis.stall import EngineStall

_SURE = frozenset({"certain", "strong"})


def judge_engine(
    engine: EngineState, stall: EngineStall, ranks: Case, kind: Kind, found: Sequence[Match], patience: Patience | None
) -> Kind | None:
    """Return the kind of the hang; None to keep the verdict on its ranks.

    ``kind``: of that verdict. ``found``: the matches that explain the stall. A long prompt or a slow model looks like
    a hang for as long as one step takes. So a process that computes, or may be computing, is a hang only with a
    strong cause, or after ten times the patience.
    """
    if not engine.demanded or stall.reason == "ended":
        return None
    if stall.reason == "gone" and engine.abandoned:
        return "rank_lost"
    if kind in HANG_KINDS and not _await_commands(ranks):
        return None
    if not (engine.stalled or (patience is None and engine.still_s > 0.0)):
        return None
    if stall.reason in {"gone", "stopped", "unscheduled"}:
        return "stall"
    long = patience is None or engine.still_s >= max(BUSY_FACTOR * engine.patience_s, BUSY_FLOOR_S)
    if stall.reason == "stuck":
        return "stall" if long or found[0].level in _SURE else "straggler"
    return "straggler" if long else None


def _await_commands(ranks: Case) -> bool:
    """True if every culprit among the ranks waits for its next command, which somebody else has to give."""
    culprits = [ranks.views[r] for r in ranks.blame.culprits if r in ranks.views]
    return bool(culprits) and all(find_awaiting(view) is not None for view in culprits)


def summarize_engine(engine: EngineState, stall: EngineStall, kind: Kind, cause: Cause) -> str:
    """Return the sentence of the verdict: which engine, its requests and its progress, who holds it up, and why."""
    verb = "makes no progress" if kind == "straggler" else "hangs"
    culprits = stall.blame.culprits
    who = f", because of {number_ranks(culprits)}" if culprits else ""
    return f"{engine.name} {verb}: {engine.says}{who}: {cause.title[0].lower()}{cause.title[1:]}."


def mention_engine(engine: EngineState, summary: str) -> str:
    """Return the summary of its ranks' verdict, with what it means for those who wait for the engine."""
    return f"{summary} {engine.name}: {engine.says}."
