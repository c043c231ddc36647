"""Whatever a job calls itself, its files or its hosts: no output moves a terminal, reorders a line or grows with it."""

from __future__ import annotations

import io
import unicodedata

import pytest
from examples import with_text
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from hangwatch.model.capture import Job
from hangwatch.model.live import LiveJob, LiveRank, LiveView
from hangwatch.model.progress import GroupFront, LiveProgress
from hangwatch.outputs.briefing import Links, brief
from hangwatch.outputs.html.incident import render_report
from hangwatch.outputs.html.live import lay_out, render_parts
from hangwatch.outputs.html.search import render_found
from hangwatch.outputs.metrics.exposition import Metrics
from hangwatch.outputs.metrics.view import IncidentMetrics, JobMetrics, MetricsView
from hangwatch.outputs.stack_tree import merge_main_stacks, render_tree
from hangwatch.outputs.terminal.console import Console
from hangwatch.outputs.terminal.rank_table import render_view
from hangwatch.outputs.terminal.verdict import print_verdict

#: Joiners, without which emoji and some scripts fall apart, and our own line breaks.
_KEPT = frozenset("\u200c\u200d\n")


def _live(text: str) -> LiveView:
    incident, capture = with_text(text)
    progress = LiveProgress(text, text, (0, 1), 7, 6, 3.0)
    ranks = tuple(LiveRank(rank, text, 1, text, 0.1, (progress,), text) for rank in (0, 1))
    front = GroupFront(text, (0, 1), 7, 6, 5, (1,), 9.0)
    return LiveView(5, (LiveJob(text, 2, text, text, ranks, (front,), incident, capture),))


def _terminal(text: str) -> str:
    incident, _ = with_text(text)
    console = Console(io.StringIO(), width=100)
    print_verdict(incident, console)
    print_verdict(incident, console, verbose=True)
    console.print(render_view(_live(text), (text,), height=24, width=100))
    assert isinstance(console.stream, io.StringIO)
    return console.stream.getvalue()


def _labels(text: str) -> str:
    group = LiveProgress(text, text, (0, 1), 1, 1, 3.0)
    rank = LiveRank(0, text, 1, text, None, (group,))
    incident = IncidentMetrics(text, "deadlock", text, "critical", 1.0, brief(with_text(text)[0], Links()), (0,))
    job = Job(text, None, (), text, text, name=text, script=text, user=text, slurm_job=text, namespace=text, pod=text)
    body = Metrics(MetricsView((JobMetrics(job, (rank,), (incident,)),))).render()[0].decode()
    families = list(text_string_to_metric_families(body))
    assert "hangwatch_build_info" in {family.name for family in families}
    return "\n".join(value for f in families for sample in f.samples for value in sample.labels.values())


OUTPUTS = {
    "report": lambda text: render_report(*with_text(text)),
    "page": lambda text: str(lay_out(render_parts(_live(text), {}, ()))),
    "search": lambda text: str(render_found(_live(text), text) + render_found(_live(text), "0-1")),
    "terminal": _terminal,
    "stacks.txt": lambda text: render_tree(merge_main_stacks(with_text(text)[1])),
    "metrics": _labels,
}


@pytest.mark.parametrize("name", OUTPUTS)
@given(text=st.text(st.characters(codec=None), min_size=1, max_size=60))
@example(text="\x1b[2J\x1b]0;owned\x07")
@example(text="one\r\ntwo\u2028three\x85four")
@example(text="\u202e\u2066txt.exe\u2069\u200f")
@example(text="\ud800\udfff")
def test_no_output_holds_what_moves_or_reorders(name: str, text: str) -> None:
    """Control characters, line breaks, bidirectional overrides and broken text are written out, wherever they come from."""
    shown = OUTPUTS[name](text)
    shown.encode()
    assert {c for c in shown if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}} <= _KEPT


@pytest.mark.parametrize("name", OUTPUTS)
def test_no_output_grows_with_a_name(name: str) -> None:
    """A megabyte where a word was expected is cut: nobody would find the verdict below it."""
    assert len(OUTPUTS[name]("x" * 1_000_000)) < len(OUTPUTS[name]("x")) + 600_000
