"""The kind of an engine's hang, and what its verdict says: demand, progress, and who holds it up. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch.analysis.case import Case
from hangwatch.analysis.patience import BUSY_FACTOR, BUSY_FLOOR_S, Patience
from hangwatch.analysis.ranks.requests import find_awaiting
from hangwatch.analysis.serving.stall import EngineStall
from hangwatch.causes.signature import Match
from hangwatch.model.incident import HANG_KINDS, Cause, Kind
from hangwatch.model.serving import EngineState
from hangwatch.model.text import format_ranks

_SURE = frozenset({"certain", "strong"})


def judge_engine(
    engine: EngineState, stall: EngineStall, ranks: Case, kind: Kind, found: Sequence[Match], patience: Patience | None
) -> Kind | None:
    """What it is; None where the verdict on its ranks stands. ``kind``: of that verdict; ``found``: what explains the stall.

    A long prompt and a slow model look like a hang for as long as one step takes: what computes, or cannot be told from it, is
    no hang but by a cause that is strong, or after ten times the patience.
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
        first = found[0].signature
        return "stall" if long or (first.level in _SURE and not first.general) else "straggler"
    return "straggler" if long else None


def _await_commands(ranks: Case) -> bool:
    """Whether all who are to blame of the ranks alone are where they take their next command: who gives it is elsewhere."""
    culprits = [ranks.views[r] for r in ranks.blame.culprits if r in ranks.views]
    return bool(culprits) and all(find_awaiting(view) is not None for view in culprits)


def summarize_engine(engine: EngineState, stall: EngineStall, kind: Kind, cause: Cause) -> str:
    """Which engine, what is asked of it and what comes out, because of whom, and why."""
    verb = "makes no progress" if kind == "straggler" else "hangs"
    culprits = stall.blame.culprits
    who = f", because of rank{'s' if len(culprits) > 1 else ''} {format_ranks(culprits)}" if culprits else ""
    return f"{engine.name} {verb}: {engine.says}{who}: {cause.title[0].lower()}{cause.title[1:]}."


def mention_engine(engine: EngineState, summary: str) -> str:
    """The verdict on an engine's ranks, with what that means for those who wait for it."""
    return f"{summary} {engine.name}: {engine.says}."
