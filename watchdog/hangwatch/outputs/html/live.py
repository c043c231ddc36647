"""The live page: every job with its ranks, open incident and group progress, and all incidents. Built of parts by id."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup

from hangwatch.model.incident import Severity
from hangwatch.model.live import LiveJob, LiveView
from hangwatch.outputs.archive import IncidentSummary
from hangwatch.outputs.html.cells import describe_states, render_cells
from hangwatch.outputs.html.elements import NOTHING, section, text, with_names
from hangwatch.outputs.html.group_progress import ProgressPoint, render_group_progress
from hangwatch.outputs.html.incidents import render_incidents
from hangwatch.outputs.html.stacks import render_stacks
from hangwatch.outputs.html.tables import table
from hangwatch.outputs.html.verdict import render_heading, render_missing, render_reasons, render_verdict
from hangwatch.outputs.stack_tree import merge_main_stacks
from hangwatch.outputs.wording import name_kind

#: Of a state directory's incidents, the newest.
_MAX_INCIDENTS = 50
_SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "info")
_STARTING = Markup('<section class="banner info"><p class="summary">Collecting first samples.</p></section>')
_NO_JOB = Markup(
    '<section class="banner info"><p class="summary">No distributed job is running on this node.</p><p>Start one with '
    "<code>hangwatch run -- torchrun ...</code>, or run <code>eval &#34;$(hangwatch env)&#34;</code> before you launch it. "
    "Jobs that are already running appear here automatically.</p></section>"
)
JobHistories = Mapping[str, Mapping[str, Sequence[ProgressPoint]]]


def job_key(job_id: str) -> str:
    """An element id for a job, valid for any job name."""
    return "job-" + hashlib.sha256(job_id.encode("utf-8", "backslashreplace")).hexdigest()[:12]


def render_parts(view: LiveView, histories: JobHistories, incidents: Sequence[IncidentSummary]) -> dict[str, Markup]:
    """All parts by element id, in their order on the page. ``histories``: by job and group, oldest point first."""
    parts: dict[str, Markup] = {}
    jobs = sorted(view.jobs, key=_urgency)
    if len(jobs) > 1:
        parts["jobs"] = section("Jobs on this node", _overview(jobs))
    for job in jobs:
        for name, content in _job_parts(job, histories.get(job.id, {})):
            parts[f"{job_key(job.id)}-{name}"] = with_names(content, job.names)
    if not view.jobs:
        parts["job-none"] = _NO_JOB if view.at_ns else _STARTING
    open_ids = {job.incident.id for job in view.jobs if job.incident is not None}
    listed = render_incidents(incidents[:_MAX_INCIDENTS], open_ids, total=len(incidents))
    parts["incidents"] = section("Incidents", listed)
    return parts


def _urgency(job: LiveJob) -> tuple[int, str]:
    """Sort key: jobs with an incident first, most severe first."""
    return (_SEVERITIES.index(job.incident.verdict.severity) if job.incident is not None else len(_SEVERITIES), job.id)


def _overview(jobs: Sequence[LiveJob]) -> Markup:
    """One row per job."""
    rows = []
    for job in jobs:
        verdict = job.incident.verdict if job.incident is not None else None
        kind = (
            Markup('<span class="kind {}">{}</span>').format(verdict.severity, name_kind(verdict.kind))
            if verdict is not None
            else Markup('<span class="quiet">no hang</span>')
        )
        summary = text(verdict.summary, 200) if verdict is not None else describe_states(_states(job))
        name = Markup('<a href="#{}-head">{}</a>').format(job_key(job.id), text(job.id, 60))
        rows.append((name, kind, summary))
    return table(("Job", "State", "Summary"), rows, css="jobs")


def _states(job: LiveJob) -> dict[int, str]:
    return {rank.rank: rank.state for rank in job.ranks}


def _job_parts(job: LiveJob, history: Mapping[str, Sequence[ProgressPoint]]) -> Iterator[tuple[str, Markup]]:
    incident = job.incident
    states = _states(job)
    culprits = incident.verdict.culprit_ranks if incident is not None else ()
    yield "head", render_heading(job.id, job.described, job.command)
    yield "verdict", render_verdict(incident) if incident is not None else _no_hang(states)
    yield "ranks", section("Ranks", render_cells(states, culprits, job.world_size))
    yield "reasons", render_reasons(incident.verdict) if incident is not None else NOTHING
    yield "groups", section("Progress by process group", render_group_progress(job.groups, history))
    show_stacks = incident is not None and job.capture is not None
    yield "stacks", render_stacks(merge_main_stacks(job.capture), culprits) if show_stacks and job.capture else NOTHING
    yield "missing", render_missing(incident) if incident is not None else NOTHING


def _no_hang(states: Mapping[int, str]) -> Markup:
    return Markup(
        '<section class="banner info"><p class="kind"><strong>No hang detected</strong></p>'
        '<p class="summary">{}</p></section>'
    ).format(describe_states(states) or "No ranks found yet.")


def lay_out(parts: Mapping[str, Markup]) -> Markup:
    """The parts, each in a ``div`` with its id."""
    return Markup("").join(Markup('<div class="part" id="{}">{}</div>').format(id, html) for id, html in parts.items())
