"""The hangs of a job before this one, wherever an incident is shown."""

from __future__ import annotations

import io

import msgspec
from examples import hang_incident

from hangwatch.model.incident import JobHistory, PastHang
from hangwatch.model.numbers import guest_number
from hangwatch.outputs.html.incident import render_incident
from hangwatch.outputs.job_history import describe_history
from hangwatch.outputs.push.notifications import RECEIVERS, Notification, utc_now
from hangwatch.outputs.terminal.console import Console
from hangwatch.outputs.terminal.verdict import print_verdict


def stall(node: str, step: int | None = None) -> PastHang:
    """A stall of rank 1 on a node."""
    return PastHang("one", "stall", False, step=step, culprit_ranks=(1,), nodes=(node,))


TWICE = JobHistory(stall("node-a", 300), (stall("node-b"), stall("node-a", 200)), 2, ("node-a",))


def test_a_history_in_words() -> None:
    """Nothing for a first hang; then this one and those before it, the last one first, and which node to leave out."""
    assert describe_history(None) == []
    assert describe_history(JobHistory(stall("node-a"))) == []
    assert describe_history(TWICE) == [
        "Third hang of this job (step 300), after 2 restarts; earlier: step 200, rank 1 on node-a; rank 1 on node-b.",
        "Consider excluding node-a from the next run: the culprits of 2 of the last 3 hangs ran there.",
    ]
    many = describe_history(JobHistory(stall("node-a"), (stall("node-b"),) * 5))
    assert many[0].endswith("; and 2 more.")
    more = describe_history(JobHistory(stall("node-a"), (stall("node-b"),) * 10, hangs=15))[0]
    assert more.startswith("Hang 15 of this job; earlier: ")
    assert more.endswith("; and 11 more.")


def test_hangs_with_the_same_culprits_are_told_as_such() -> None:
    """The ranks and the node are in the verdict already."""
    again = JobHistory(stall("node-a", 310), (stall("node-a", 300),), restarts=1)
    said = "Second hang of this job (step 310), after 1 restart; the first had the same culprits (step 300)."
    assert describe_history(again) == [said]
    thrice = JobHistory(stall("node-a"), (stall("node-a"),) * 2)
    assert describe_history(thrice) == ["Third hang of this job; the first 2 had the same culprits."]


def test_an_earlier_culprit_of_another_world_goes_by_the_name_it_had() -> None:
    """Its number is of that run of the job alone."""
    engine = guest_number("engines", 0)
    before = PastHang("one", "stall", False, culprit_ranks=(engine,), names={engine: "engine/0"})
    assert "earlier: engine/0." in describe_history(JobHistory(stall("node-a"), (before,)))[0]


def test_every_output_has_the_history() -> None:
    """The terminal, the page and each kind of notification name the node; of a first hang they say nothing."""
    first = hang_incident()
    again = msgspec.structs.replace(first, history=TWICE)
    for incident, has in ((first, False), (again, True)):
        console = Console(io.StringIO(), width=100)
        print_verdict(incident, console)
        shown = [console.stream.getvalue(), str(render_incident(incident, None))]  # type: ignore[attr-defined]
        notification = Notification(incident, None, "node-a")
        shown += [receiver.render(notification, None, utc_now()).decode() for receiver in RECEIVERS.values()]
        assert ["node-b" in text for text in shown] == [has] * len(shown)
