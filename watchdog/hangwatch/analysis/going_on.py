"""Whether a job goes on although something in it is stuck. Pure.

A thread of its own saves or reports, and training does not wait for it.
"""

from __future__ import annotations

from itertools import islice

from hangwatch.analysis.case import Case
from hangwatch.analysis.ranks.views import RankView
from hangwatch.model.collectives import Operation

#: So many of a rank's last operations are looked at: those in flight, and what has completed beside them.
_LAST = 64


def goes_on(case: Case, since_ns: int) -> bool:
    """Whether every rank concerned is stuck in a thread beside its main one, which has completed collectives since then.

    Ranks whose recorder does not tell by which thread an operation was called do not go on, as far as is known.
    """
    operation = case.operation
    ranks = [r for r in case.blame.culprits or case.blame.waiting if r in case.views]
    if operation is None or not ranks:
        return False
    after_ns = max(since_ns, operation.created_ns)
    return all(_main_goes_on(case.views[r], operation, after_ns) for r in ranks)


def _main_goes_on(view: RankView, operation: Operation, after_ns: int) -> bool:
    main = view.taken.stacks[-1].main if view.taken.stacks else None
    if view.thread is None or main is None or not main.ident or view.taken.flight is None:
        return False
    recorded = view.taken.flight.operations
    last = (recorded[at] for at in range(len(recorded) - 1, -1, -1))
    mine = (o for o in islice(last, _LAST) if o.thread == main.ident and o.group.key != operation.group.key)
    return any(o.completed and o.created_ns > after_ns for o in mine)
