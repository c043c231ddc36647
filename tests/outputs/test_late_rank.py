"""How an incident of a late rank reads: as late, not as a hang that nobody has proven; and where its time goes."""

from __future__ import annotations

import io
import re

import msgspec
import pytest

from hangwatch.diagnosis.document import make_incident
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture, Job, RankCapture, RankIdentity
from hangwatch.model.incident import Incident, Lateness
from hangwatch.model.live import LastToJoin, LiveJob, LiveRank, LiveView
from hangwatch.model.progress import GroupFront
from hangwatch.model.slowness import Profile, ProfiledStack, SlowJob, SlowRank
from hangwatch.model.stacks import Frame
from hangwatch.outputs.html.group_progress import JobProgress
from hangwatch.outputs.html.incident import render_report
from hangwatch.outputs.html.live import job_key, render_parts
from hangwatch.outputs.markdown.report import render_markdown
from hangwatch.outputs.terminal.console import Console
from hangwatch.outputs.terminal.rank_table import render_view
from hangwatch.outputs.terminal.verdict import print_verdict

AT_NS = 1_780_000_000_000_000_000
LOAD = Frame("main", "/srv/train.py", 7, "for batch in loader:")
STEP = Frame("main", "/srv/train.py", 9, "loss.backward()")


@pytest.fixture(scope="module")
def late() -> tuple[Incident, Capture]:
    """Rank 2 of four loads its batches slowly."""
    lateness = Lateness(2, 0.3, 0.05, 0.43, (0, 1, 3), 60, 60, "Rank 2 took 50 ms longer.")
    profiles = (
        Profile(2, 100, (ProfiledStack((LOAD,), 0.4), ProfiledStack((STEP,), 0.6))),
        Profile(1, 100, (ProfiledStack((STEP,), 1.0),)),
    )
    ranks = tuple(RankCapture(RankIdentity(rank, 100 + rank, 1.0, node="here")) for rank in range(4))
    capture = Capture(Job("job", 4), AT_NS, ranks, slow=SlowRank(lateness, AT_NS, profiles))
    return make_incident(diagnose(capture), detected_ns=AT_NS, confirmed_ns=AT_NS), capture


def test_nothing_is_said_of_proof(late: tuple[Incident, Capture]) -> None:
    """Neither in a terminal nor in a report; and the cause is what takes the time, not what the summary says already."""
    incident, capture = late
    stream = io.StringIO()
    print_verdict(incident, Console(stream, width=400))
    html, markdown = render_report(incident, capture), render_markdown(incident)
    for shown in (stream.getvalue(), html, markdown):
        assert "proven" not in shown
    assert "it spends 40 percentage points more of its time at" in " ".join(stream.getvalue().split())
    assert markdown.startswith("## Slow\n")
    assert "no information" not in html


def test_the_report_has_a_table_of_lines(late: tuple[Incident, Capture]) -> None:
    """In place of the stacks of one moment of a job that goes on."""
    html = render_report(*late)
    assert "Where their time goes" in html
    assert "Merged stacks" not in html
    assert "<td>40%</td><td>0%</td>" in html
    assert "<td>60%</td><td>100%</td>" in html


def test_a_job_that_is_slower_than_before(late: tuple[Incident, Capture]) -> None:
    """The line as an example, without a culprit, and one rank's time now and before."""
    capture = late[1]
    assert isinstance(capture.slow, SlowRank)
    slow = SlowJob(0.2, 0.1, AT_NS, ("all_reduce",), capture.slow.profiles)
    capture = msgspec.structs.replace(capture, slow=slow)
    incident = make_incident(diagnose(capture), detected_ns=AT_NS, confirmed_ns=AT_NS)
    stream = io.StringIO()
    print_verdict(incident, Console(stream, width=400))
    assert "Steps take 2.0 times as long as before: 0.2 s instead of 0.1 s." in stream.getvalue()
    assert "example, rank 2: srv/train.py:7 in main" in stream.getvalue()
    html = render_report(incident, capture)
    assert "Where it spends more of its time than before" in html
    assert re.search(r"<th[^>]*>Now</th>\s*<th[^>]*>Before</th>", html)
    assert "culprit" not in render_markdown(incident).lower()


def test_the_rank_is_marked_as_late(late: tuple[Incident, Capture]) -> None:
    """In the table of ranks and on the page, which also has who joined a group's operations last."""
    incident, capture = late
    ranks = tuple(LiveRank(rank, "here", 100 + rank, "running", 0.1) for rank in range(4))
    slices = (LastToJoin(0, 3, 4, 1_000_000, 0, 10**9), LastToJoin(2, 6, 6, 50_000_000, 10**9, 2 * 10**9))
    last = LastToJoin(2, 6, 10, 50_000_000, 0, 2 * 10**9, slices)
    job = LiveJob(
        "job", 4, ranks=ranks, groups=(GroupFront("all", (0, 1, 2, 3), 9, 9, 9, key="0@"),), incident=incident
    )
    job = msgspec.structs.replace(job, capture=capture, last_to_join={"0@": last})
    view = LiveView(AT_NS, (job,))
    table = ["".join(span.text for span in line) for line in render_view(view)]
    assert [line.split()[0] for line in table if "running, late" in line] == ["2"]
    parts = render_parts(view, {"job": JobProgress()}, ())
    assert "</i>late</strong>" in parts[f"{job_key('job')}-ranks"]
    strip = parts[f"{job_key('job')}-groups"]
    assert "Last to join: rank 2 in 60% of 10 operations, by 50 ms" in strip
    assert strip.count("<rect") == 2
    assert strip.count('<rect class="most"') == 1
