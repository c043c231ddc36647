"""A close look at a job, here or on all its nodes at once, and what is asked besides where it may change the verdict."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hangwatch.agent.capturing.hardware import OF_THE_LOST
from hangwatch.analysis.patience import Patience
from hangwatch.diagnosis.verdict import Diagnosis, diagnose
from hangwatch.model.capture import Capture

if TYPE_CHECKING:
    from hangwatch.agent.job.watch import JobWatch

#: Operations younger than this when looked at are no waits yet.
MIN_WAIT_S = 0.5
#: Of how many ranks, at the most, call sites are fetched before a verdict is told.
SITES_LIMIT = 8


async def look(watch: JobWatch) -> Capture:
    """Look closely at all ranks now, those of other nodes with them where this one leads."""
    if watch.fleet is not None and watch.fleet.leads:
        return await watch.fleet.gather(watch.look_here())
    return await watch.look_here()


async def judge(capture: Capture, patience: Patience, before: Diagnosis | None = None) -> Diagnosis:
    """The diagnosis; of thousands of ranks it takes seconds, in which beats, the lease and the page go on.

    ``before``: that of the same capture, some of whose ranks tell more now.
    """
    case = before.case if before is not None else None
    return await asyncio.to_thread(diagnose, capture, patience=patience, min_wait_s=MIN_WAIT_S, before=case)


async def with_hardware(watch: JobWatch, diagnosis: Diagnosis, patience: Patience) -> Diagnosis:
    """The same diagnosis with what the node says of its GPUs and its fabric, where that may change it.

    A proof needs none of it and does not wait for it: it comes into the bundle later.
    """
    kind, case = diagnosis.verdict.kind, diagnosis.case
    together = case.blame.shape == "together" and (diagnosis.waited_s or 0.0) >= patience.stall_s
    if kind == "deadlock" or (kind in {"healthy", "straggler"} and not together):
        return diagnosis
    only = tuple(OF_THE_LOST) if kind == "rank_lost" else None
    if watch.fleet is not None and watch.fleet.leads:
        capture = await watch.fleet.add_hardware(case.capture, lambda c: watch.hardware_here(c, only), only)
    else:
        capture = await watch.hardware_here(case.capture, only)
    if capture is case.capture:
        return diagnosis
    return await judge(capture, patience, before=diagnosis)


async def with_call_sites(watch: JobWatch, diagnosis: Diagnosis, patience: Patience) -> Diagnosis:
    """The same diagnosis with the call sites of both sides, where ranks parted: their history tells why."""
    blame = diagnosis.case.blame
    if blame.shape != "cycle" and (blame.parting is None or not blame.parting.mismatch):
        return diagnosis
    wanted = {r for r in diagnosis.case.representatives if r is not None} | set(blame.component[:SITES_LIMIT])
    capture = await add_sites(watch, diagnosis.case.capture, sorted(wanted))
    again = await judge(capture, patience, before=diagnosis)
    return again if again.verdict.kind == diagnosis.verdict.kind else diagnosis


async def add_sites(watch: JobWatch, capture: Capture, ranks: list[int] | None) -> Capture:
    """The capture with the call sites of ``ranks`` (None: all), those of other nodes with them where this one leads."""
    if watch.fleet is not None and watch.fleet.leads:
        return await watch.fleet.add_sites(capture, lambda c: watch.sites_here(c, ranks), ranks)
    return await watch.sites_here(capture, ranks)
