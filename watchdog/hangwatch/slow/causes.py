"""What is said of what makes a job slow that goes on: the cause, why, and the evidence. Pure."""

from __future__ import annotations

from hangwatch.causes.match import Match
from hangwatch.model.incident import Evidence, SlowReason
from hangwatch.model.slowness import Slow, SlowJob, SlowLink, SlowRank
from hangwatch.model.text import short_place
from hangwatch.slow.links import name_link
from hangwatch.slow.reason import find_reason

_WHY: dict[SlowReason, str] = {
    "input": "waits for input (a DataLoader, a file, a pipe or a connection)",
    "sleep": "sleeps",
    "lock": "waits for a lock or for another of its threads",
    "throttled": "is throttled, because its cgroup has used up its CPU time",
    "no_core": "waits for a free core, because other work uses the cores that it may run on",
    "compute": "spends longer computing",
    "unknown": "takes longer, and nothing that hangwatch reads shows why",
}


def match_slow(slow: Slow) -> Match:
    """Return the match for what slows a job down."""
    if isinstance(slow, SlowLink):
        return _slow_link(slow)
    if isinstance(slow, SlowJob):
        took = f"{1000 * slow.step_s:.3g} ms a step now, {1000 * slow.before_s:.3g} ms before"
        return _by_profiles("slow-job", slow, "before", Evidence(slow.profiles[0].rank, "flight recorder", took))
    usual = f"rank {slow.profiles[1].rank}, which is as fast as most" if slow.profiles else ""
    late = f"{1000 * slow.lateness.late_s:.3g} ms longer than its peers in a step"
    return _by_profiles("slow-rank", slow, usual, Evidence(slow.lateness.rank, "flight recorder", late))


def _by_profiles(cause: str, slow: SlowRank | SlowJob, usual: str, first: Evidence) -> Match:
    """Return the match by what a rank does more than is ``usual``."""
    reason, evidence = find_reason(slow), [first]
    if reason.frame is not None:
        place = short_place(reason.frame.file, reason.frame.line)
        more = f"{100 * reason.share:.0f} percentage points more of its time at {place}"
        where = f"it spends {more} than {usual}"
        evidence.append(Evidence(first.rank, "stacks", more))
    else:
        where = "no single line of the program accounts for the extra time"
    why = f"Rank {first.rank} {_WHY.get(reason.kind) or _say_clocks(slow)}"
    if reason.kind == "gpu_clocks":
        evidence.append(Evidence(first.rank, "nvml", why))
    return Match(cause, "strong", f"{why}: {where}.", tuple(evidence))


def _slow_link(found: SlowLink) -> Match:
    where = name_link(found)
    lost = f" {found.repeated:.0%} of this data gets lost and has to be sent again." if found.repeated else ""
    return Match(
        "slow-link",
        "strong",
        f"On {where}, sent data waits for the network {found.busy:.0%} of the time; on other links, at most"
        f" {found.others:.0%}.{lost}",
        (Evidence(None, "TCP", f"sent data stays unacknowledged {found.busy:.0%} of the time on {where}"),),
    )


def _say_clocks(slow: SlowRank | SlowJob) -> str:
    late, usual = slow.gpus
    because = f", because of {' and '.join(late.slowed_by)}" if late.slowed_by else ""
    other = "before" if isinstance(slow, SlowJob) else f"on rank {slow.profiles[1].rank}"
    return f"has a GPU that runs at {late.clock_mhz} MHz{because} ({usual.clock_mhz} MHz {other})"
