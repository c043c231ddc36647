"""A rank that moves and keeps the others waiting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from hangwatch.analysis.case import Case
from hangwatch.analysis.places import bare, calls, function_of, where
from hangwatch.analysis.ranks.shutdown import shutdown_frame
from hangwatch.analysis.ranks.views import RankView
from hangwatch.causes.evidence import at_process, at_stack
from hangwatch.causes.match import Level, Match
from hangwatch.model.incident import Evidence
from hangwatch.model.stacks import Frame

#: If the job's cadence is not known, computing in the same lines for so long is no ordinary step.
LONG_S = 240.0
#: Computing for so many times the longest step on record, and so many seconds, is beyond anything the job has done.
UNPRECEDENTED = 8.0
UNPRECEDENTED_FLOOR_S = 3.0
_STEPS_ON_RECORD = 8
#: At least this share of the stacks must have the same outermost function.
_WHOLE_SHARE = 0.75
#: How many operations before the pending one are read (at least, at most), and how many arrivals of ranks in all.
_FEWEST_ARRIVALS, _MOST_ARRIVALS, _ARRIVALS_IN_ALL = 8, 32, 1 << 16
_COMPILERS = frozenset(
    {"nvcc", "cicc", "ptxas", "cc1plus", "cc1", "g++", "gcc", "clang", "clang++", "ninja", "c++", "ld", "hipcc"}
)
_COMPILING = {
    "torch/_dynamo/": ("_compile", "compile_inner", "_compile_inner", "transform_code_object", "convert_frame"),
    "torch/_inductor/": ("compile_fx", "compile_fx_inner", "codegen", "compile_to_module", "fx_codegen_and_compile"),
    "torch/_functorch/": ("aot_module_simplified", "create_aot_dispatcher_function"),
    "triton/compiler/": ("compile",),
    "triton/runtime/": ("_do_compile",),
    "torch/utils/cpp_extension.py": ("load", "jit_compile", "_jit_compile", "_run_ninja_build"),
}
_BARRIERS = frozenset({"barrier", "monitored_barrier", "store"})


def _busy(case: Case) -> list[tuple[int, RankView]]:
    """Return the culprits that move, outside of collectives.

    Without those that have called an operation that matches no other: what they do after that is not the cause.
    """
    diverged_at = case.blame.diverged_at
    sides = diverged_at.sides if diverged_at is not None and diverged_at.mismatch else ()
    called = {rank for side in sides if side.operation is not None for rank in side.ranks}
    return [(r, v) for r, v in case.seen_culprits if r not in called and v.state == "busy"]


def compiling(case: Case) -> Match | None:
    """Return a match for compiler frames on the main thread, or compiler processes among the children."""
    for rank, view in case.seen_culprits:
        if view.gone or view.motion.state == "stopped" or view.state == "waiting":
            continue
        frame = next(
            (f for part, names in _COMPILING.items() if (f := calls(view.frames, part, *names)) is not None), None
        )
        children = {c.name for p in view.capture.processes for c in p.children if c.name in _COMPILERS}
        if frame is None and not children:
            continue
        evidence = at_stack(case, rank, frame)
        evidence += (Evidence(rank, "child process", f"runs {', '.join(sorted(children))}"),) if children else ()
        evidence += at_process(case, rank)
        return Match("compile-skew", "strong", f"Rank {rank} is compiling.", evidence)
    return None


def rank0_work(case: Case) -> Match | None:
    """Return a match if all who wait are at a barrier, and one rank works."""
    waiting = wait_at_barrier(case)
    if len(case.blame.culprits) != 1 or not waiting:
        return None
    rank = case.blame.culprits[0]
    view = case.views.get(rank)
    if view is None or view.state == "waiting" or view.frontier is not None or shutdown_frame(view.frames):
        return None
    if view.motion.state != "busy":
        return None  # a rank that is stuck does not work
    evidence = (*at_stack(case, rank), *at_process(case, rank), *at_stack(case, waiting[0].rank))
    said = f"Rank {rank} is working outside of any collective while the others wait at a barrier."
    return Match("rank0-work", "strong", said, evidence)


def wait_at_barrier(case: Case) -> list[RankView]:
    """Return the waiting ranks if all of them are at a barrier; else none."""
    waiting = [case.views[r] for r in case.blame.waiting if r in case.views]
    return waiting if all(map(_at_barrier, waiting)) else []


def _at_barrier(view: RankView) -> bool:
    if view.frontier is not None and view.frontier.op in _BARRIERS:
        return True
    return view.wait is not None and view.wait.op in _BARRIERS


def _shared_place(view: RankView) -> Frame | None:
    """Return the innermost call that is on the main thread in every sample; None if there is none."""
    paths = [tuple(reversed(s.main.frames)) for s in view.capture.stacks if s.main is not None and s.main.frames]
    # A process that runs while its stack is read sometimes shows a path without its outer end.
    begins = Counter(function_of(p[0]) for p in paths)
    usual, times = begins.most_common(1)[0] if begins else (("", ""), 0)
    if times < 2 or times < _WHOLE_SHARE * len(paths):
        return None
    shared: Frame | None = None
    for level in zip(*(p for p in paths if function_of(p[0]) == usual), strict=False):
        if len({function_of(f) for f in level}) > 1:
            break
        shared = level[-1]
        if len({f.line for f in level}) > 1:
            break
    return shared


def busy_loop(case: Case) -> Match | None:
    """Return a match if one rank computes in one function for as long as we look, and has done so for long."""
    for rank, view in _busy(case):
        place = _shared_place(view)
        running = all(p.state == "R" for p in view.capture.processes[-2:])
        if place is None or bare(place) == "<module>" or not (running or (view.motion.cpu_share or 0.0) >= 0.5):
            continue
        onset = case.onset_ns
        waited_s = (case.capture.at_ns - onset) / 1e9 if onset is not None else 0.0
        longest_s = _longest_step_s(view)
        unprecedented = longest_s is not None and waited_s >= max(UNPRECEDENTED * longest_s, UNPRECEDENTED_FLOOR_S)
        level: Level = "likely" if waited_s >= LONG_S or unprecedented else "possible"
        said = f"Rank {rank} has been computing in {bare(place)} for {waited_s:.0f} s, in every sample."
        if unprecedented:
            said += f" The longest gap between two of its operations was {longest_s:.2g} s."
        evidence = (Evidence(rank, "stack", f"in every sample: {where(place)}"), *at_process(case, rank))
        return Match("busy-loop", level, said, evidence)
    return None


def _longest_step_s(view: RankView) -> float | None:
    """Return the longest time between two recorded operations, without the first ones (warm-up); None if there are too few."""
    flight = view.capture.flight
    at_ns = [o.created_ns for o in flight.operations] if flight is not None else []
    steps = [(b - a) / 1e9 for a, b in pairwise(at_ns)][_STEPS_ON_RECORD // 2 :]
    return max(steps) if len(steps) >= _STEPS_ON_RECORD else None


def straggler(case: Case) -> Match | None:
    """Return a match if the rank came last to most of the operations before this one, or at least moves now."""
    busy = dict(_busy(case))
    arrivals = _arrivals(case)
    for rank, view in case.seen_culprits:
        if view.gone or view.motion.state == "stopped" or view.state == "waiting":
            continue
        late = [seconds for arrival in arrivals if (seconds := arrival.late_s(rank)) is not None]
        often = sum(d > 0 for d in late) / len(late) if late else 0.0
        usual_s = sorted(late)[len(late) // 2] if late else 0.0
        # A rank cannot be late by more than the time since its operation before: else the clocks of the hosts differ.
        steps_s = [(b - a) / 1e9 for a, b in pairwise(sorted(a.at_ns[rank] for a in arrivals if rank in a.at_ns))]
        habit = len(late) >= 4 and often >= 0.8 and 0.05 < usual_s <= max(steps_s)
        if not habit and rank not in busy:
            continue
        evidence = (*at_process(case, rank), *at_stack(case, rank))
        said = f"Rank {rank} is working while the others wait."
        if habit:
            said = (
                f"Rank {rank} arrived last at {often:.0%} of the last {len(late)} operations, usually by "
                f"{usual_s:.2f} s."
            )
            evidence = (Evidence(rank, "flight recorder", said), *evidence)
        return Match("straggler", "strong" if habit else "possible", said, evidence)
    return None


@dataclass(frozen=True)
class _Arrival:
    """When the ranks came to one operation (ns, by rank), and when the last two of them did."""

    at_ns: Mapping[int, int]
    last: int
    before_last: int

    def late_s(self, rank: int) -> float | None:
        """Return how long after all others a rank came; negative if it was not last, None if it did not come."""
        own = self.at_ns.get(rank)
        return None if own is None else (own - (self.before_last if own == self.last else self.last)) / 1e9


def _arrivals(case: Case) -> tuple[_Arrival, ...]:
    """Return the last operations before the pending one in its group that two ranks or more have come to."""
    operation = case.operation
    if operation is None:
        return ()
    key = operation.group.key
    last = max(_FEWEST_ARRIVALS, min(_MOST_ARRIVALS, _ARRIVALS_IN_ALL // len(case.world)))
    found = []
    for seq in range(operation.seq - 1, max(0, operation.seq - 1 - last), -1):
        at_ns = dict(case.history.at(key, seq).created_ns())
        if len(at_ns) > 1:
            before_last, latest = sorted(at_ns.values())[-2:]
            found.append(_Arrival(at_ns, latest, before_last))
    return tuple(found)
