"""Processes of other worlds have names wherever people read of them: their numbers are for the analysis alone."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from corpus.catalogue import captured, in_core, load_capture, load_catalogue
from corpus.entries import Entry
from hangwatch.agent.incidents.record import IncidentRecord
from hangwatch.agent.job.state import JobState
from hangwatch.agent.node_agent import live_view
from hangwatch.agent.published import job_metrics
from hangwatch.analysis.patience import fixed_patience
from hangwatch.diagnosis.document import make_incident
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.beats import Beat, BeatGroup
from hangwatch.model.capture import Capture, RankCapture
from hangwatch.model.numbers import is_guest
from hangwatch.outputs.briefing import Links
from hangwatch.outputs.bundle.bundle import write_bundle
from hangwatch.outputs.html.live import render_parts
from hangwatch.outputs.markdown.report import BRIEF, WHOLE, render_markdown
from hangwatch.outputs.metrics.exposition import Metrics
from hangwatch.outputs.metrics.view import MetricsView
from hangwatch.outputs.terminal.console import Console
from hangwatch.outputs.terminal.verdict import print_verdict

RECORDED = captured(load_catalogue(["several_worlds/*", "requests/*", "mixed_fleets/*"]))
#: For programs: there a number stands beside its name.
FOR_PROGRAMS = {"ranks.jsonl", "stacks.jsonl", "capture.json", "incident.json", "training.json"}
_NUMBER = re.compile(r"(?<![\d.])\d{13}(?!\d)")


@pytest.mark.parametrize(
    "entry", [pytest.param(e, id=e.name, marks=() if in_core(e) else pytest.mark.soak) for e in RECORDED]
)
def test_no_number_of_a_guest_is_shown(entry: Entry, tmp_path: Path) -> None:
    """In the bundle's files for people, the report as Markdown, the terminal, the page and the metrics."""
    capture = load_capture(entry)
    diagnosis = diagnose(capture)
    incident = make_incident(diagnosis, detected_ns=capture.at_ns, confirmed_ns=capture.at_ns)
    bundle = write_bundle(tmp_path, incident, capture)
    shown = {file.name: file.read_text() for file in bundle.iterdir() if file.name not in FOR_PROGRAMS}
    shown |= {extent: render_markdown(incident, how) for extent, how in {"whole": WHOLE, "brief": BRIEF}.items()}
    terminal = io.StringIO()
    print_verdict(incident, Console(terminal, width=100), verbose=True)
    shown["terminal"] = terminal.getvalue()
    state, beats = _under_watch(capture, IncidentRecord(incident, diagnosis, bundle, capture.at_ns))
    shown |= render_parts(live_view((state,), beats, capture.at_ns), {}, [])
    metrics = Metrics(MetricsView((job_metrics(state, beats, capture.at_ns, Links()),))).render()[0].decode()
    shown["metrics"] = metrics
    numbers = {rank.rank for rank in capture.ranks if is_guest(rank.rank)}
    found = {name for name, text in shown.items() if numbers & {int(n) for n in _NUMBER.findall(text)}}
    assert {"stacks.txt", "report.html"} <= shown.keys()
    assert not found
    for name in {rank.identity.name for rank in capture.ranks if is_guest(rank.rank)}:
        assert f'rank="{name}"' in metrics


def _under_watch(capture: Capture, record: IncidentRecord) -> tuple[JobState, dict[int, Beat]]:
    """The job with its incident, and beats (by pid) that say what the capture has of each rank's groups."""
    ranks = {rank.rank: rank.identity for rank in capture.ranks}
    state = JobState(capture.job, ranks, lost=frozenset(), patience=fixed_patience(30.0), hang=record)
    return state, {rank.identity.pid: _beat(rank, capture.at_ns) for rank in capture.ranks}


def _beat(rank: RankCapture, at_ns: int) -> Beat:
    groups = tuple(
        BeatGroup(p.group.name, p.group.ranks, None, p.group.description, "gloo", p.enqueued, p.started, p.completed)
        for p in rank.progress or ()
    )
    return Beat(1, rank.identity.pid, 0, 1, at_ns, rank=rank.rank, initialized=True, groups=groups)
