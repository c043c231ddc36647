"""What is said of a rank or a link that makes the others late: the cause, why, and the evidence. Pure."""

from __future__ import annotations

from hangwatch.causes.match import Match
from hangwatch.model.incident import Evidence, SlowReason
from hangwatch.model.slowness import SlowLink, Slowness
from hangwatch.model.text import short_place
from hangwatch.slow.links import name_link
from hangwatch.slow.reason import find_reason

_WHY: dict[SlowReason, str] = {
    "input": "There it waits for input: a DataLoader, a file, a pipe or a connection.",
    "sleep": "There it sleeps.",
    "lock": "There it waits for a lock or for another of its threads.",
    "throttled": "Its cgroup has used up its CPU time and is throttled.",
    "no_core": "It waits for a free core: other work takes the cores that it may use.",
    "compute": "There it computes.",
    "unknown": "Nothing that hangwatch reads shows why.",
}


def slow_rank(slowness: Slowness) -> Match:
    """Return the match for a rank that takes longer for each step than its peers."""
    lateness, reason = slowness.lateness, find_reason(slowness)
    evidence = [
        Evidence(lateness.rank, "flight recorder", f"{1000 * lateness.late_s:.3g} ms longer than its peers in a step")
    ]
    if reason.frame is not None:
        usual = slowness.profiles[1].rank
        place = short_place(reason.frame.file, reason.frame.line)
        where = f"It spends {reason.share:.0%} more of its time at {place} than rank {usual}, which is as fast as most."
        evidence.append(Evidence(lateness.rank, "stacks", f"{reason.share:.0%} more of its time at {place}"))
    else:
        where = "No single line of the program takes what it needs more."
    why = _WHY.get(reason.kind) or _say_clocks(slowness)
    if reason.kind == "gpu_clocks":
        evidence.append(Evidence(lateness.rank, "nvml", why))
    return Match("slow-rank", "strong", f"{where} {why}", tuple(evidence))


def slow_link(found: SlowLink) -> Match:
    """Return the match for links that are slower than those of the rest of the job."""
    where = name_link(found)
    return Match(
        "slow-link",
        "strong",
        f"Sent data waits for the network for {found.busy:.0%} of the time on {where}, and for at most {found.others:.0%} on"
        " other links.",
        (Evidence(None, "TCP", f"data is not acknowledged for {found.busy:.0%} of the time on {where}"),),
    )


def _say_clocks(slowness: Slowness) -> str:
    late, usual = slowness.gpus
    because = f", because of {' and '.join(late.slowed_by)}" if late.slowed_by else ""
    return f"Its GPU runs at {late.clock_mhz} MHz{because}; that of rank {slowness.profiles[1].rank} at {usual.clock_mhz} MHz."
