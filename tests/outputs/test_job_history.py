"""The hangs of a job before this one, wherever an incident is shown."""

from __future__ import annotations

import io

import msgspec
from examples import hang_incident
from rich.console import Console

from hangwatch.model.incident import JobHistory, PastHang
from hangwatch.model.numbers import guest_number
from hangwatch.outputs.html.incident import render_incident
from hangwatch.outputs.job_history import describe_history
from hangwatch.outputs.push.notifications import RECEIVERS, Notification, utc_now
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
        "Hang 3 of this job (restarted 2 times): step 300, rank 1 on node-a; before: step 200, rank 1 on node-a; "
        "rank 1 on node-b.",
        "node-a had the culprits of 2 of the last 3 hangs: consider excluding it from the next run.",
    ]
    many = describe_history(JobHistory(stall("node-a"), (stall("node-b"),) * 5))
    assert many[0].endswith("; and 2 more.")
    more = describe_history(JobHistory(stall("node-a"), (stall("node-b"),) * 10, hangs=15))[0]
    assert more.startswith("Hang 15 of this job: ")
    assert more.endswith("; and 11 more.")


def test_an_earlier_culprit_of_another_world_goes_by_the_name_it_had() -> None:
    """Its number is of that run of the job alone."""
    engine = guest_number("engines", 0)
    before = PastHang("one", "stall", False, culprit_ranks=(engine,), names={engine: "engine/0"})
    assert "before: engine/0." in describe_history(JobHistory(stall("node-a"), (before,)))[0]


def test_every_output_has_the_history() -> None:
    """The terminal, the page and each kind of notification name the node; of a first hang they say nothing."""
    first = hang_incident()
    again = msgspec.structs.replace(first, history=TWICE)
    for incident, has in ((first, False), (again, True)):
        console = Console(file=io.StringIO(), width=100)
        print_verdict(incident, console)
        shown = [console.file.getvalue(), str(render_incident(incident, None))]  # type: ignore[attr-defined]
        notification = Notification(incident, None, "node-a")
        shown += [receiver.render(notification, None, utc_now()).decode() for receiver in RECEIVERS.values()]
        assert ["node-b" in text for text in shown] == [has] * len(shown)
