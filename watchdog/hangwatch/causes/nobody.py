"""Nobody's rank: all are where they should be, and nothing completes."""

from __future__ import annotations

from hangwatch.analysis.alignment import describe
from hangwatch.analysis.case import Case
from hangwatch.causes.hypothesis import Hypothesis, Knowledge
from hangwatch.model.incident import Evidence

FABRIC = Knowledge(
    id="fabric-or-device",
    title="All ranks have joined and the transfer does not complete",
    remedy=(
        "Look at the kernel log for Xid errors, at link counters (`nvidia-smi nvlink -e`, `ibqueryerrors`), and at each GPU: "
        "busy at low power is a transfer that does not move.",
        "Run the NCCL tests on the same nodes; take out one node at a time.",
        "NCCL_DEBUG=INFO shows the transport in use; NCCL_P2P_DISABLE=1 or NCCL_IB_DISABLE=1 tell the layers apart.",
    ),
    references=("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",),
)


def fabric(case: Case) -> Hypothesis | None:
    """Every member is in the same operation with the same tensors, by the recorder."""
    operation = case.operation
    if case.blame.shape != "together" or operation is None:
        return None
    here = case.history.at(operation.group.key, operation.seq)
    members = set(operation.group.ranks) or set(case.world)
    if not members.issubset(here):
        return None
    number = f"number {operation.seq} of {operation.group.label}"
    said = f"All members are in {describe(operation)}, {number}, and it does not complete."
    evidence = tuple(
        Evidence(
            r,
            "flight recorder",
            f"number {o.seq} of {o.group.label}: {describe(o)}, {'started' if o.started else 'enqueued'}, not completed",
        )
        for r, o in sorted(here.items())
    )
    return Hypothesis(FABRIC, 0.6 if operation.backend == "nccl" else 0.3, said, evidence)
