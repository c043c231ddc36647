"""The live page: every job with its ranks, open incident and group progress, and all incidents. Built of parts by id."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from urllib.parse import quote

from markupsafe import Markup

from hangwatch.model.incident import Severity
from hangwatch.model.live import LiveJob, LiveView
from hangwatch.model.numbers import name_guests
from hangwatch.model.progress import LONG_S
from hangwatch.model.text import short_ranks
from hangwatch.outputs.archive import IncidentSummary
from hangwatch.outputs.html.cells import describe_states, render_cells
from hangwatch.outputs.html.elements import (
    NOTHING,
    code,
    copy_link,
    fact_list,
    moment,
    section,
    small_id,
    text,
    with_names,
)
from hangwatch.outputs.html.group_progress import JobPace, JobProgress, render_group_progress
from hangwatch.outputs.html.stacks import render_stacks
from hangwatch.outputs.html.tables import table
from hangwatch.outputs.html.verdict import render_heading, render_missing, render_reasons, render_verdict
from hangwatch.outputs.sanitize import excerpt
from hangwatch.outputs.stack_tree import merge_main_stacks
from hangwatch.outputs.wording import describe_stall_timeout, duration, mark_culprit, name_kind


def render_healthy(job: LiveJob, progress: JobProgress) -> Markup:
    """Return a healthy job's pace, last progress, longest current wait, and stall timeout."""
    states = {rank.rank: rank.state for rank in job.ranks}
    waits = [(group.in_flight_s, group.label) for group in job.groups if group.in_flight_s is not None]
    longest_s, where = max(waits, default=(0.0, ""))
    facts = [
        ("Ranks", describe_states(states) or "none found yet"),
        ("Last progress", _last_progress(progress.pace) if job.groups else NOTHING),
        ("Longest wait now", Markup("{} in {}").format(duration(longest_s), code(where)) if where else NOTHING),
        ("Stall timeout", _stall_timeout(job, longest_s)),
    ]
    return Markup(
        '<section class="banner info"><p class="kind"><strong>No hang detected</strong></p>'
        '<p class="summary">{}</p>{}</section>'
    ).format(describe_pace(job, progress.pace), fact_list(facts))


def describe_pace(job: LiveJob, pace: JobPace) -> str:
    """Return how fast the job is, as a sentence."""
    if not job.ranks:
        return "No ranks found yet."
    if not job.groups:
        if all(rank.beat_age_s is None for rank in job.ranks):
            return "The ranks run without the probe, so their progress is not visible."
        return "No rank has created a process group yet."
    if pace.per_s is None:
        return "Measuring collectives a second."
    if pace.still_s >= LONG_S:
        return f"No progress for {duration(pace.still_s)}."
    if pace.per_s == 0:
        return "No collective in the last minute."
    if pace.per_s < 0.1:
        return f"One collective every {duration(1 / pace.per_s)}."
    return f"{pace.per_s:{'.0f' if pace.per_s >= 10 else '.1f'}} collectives a second."


def _last_progress(pace: JobPace) -> str:
    return f"{duration(pace.still_s)} ago" if pace.still_s >= LONG_S else "just now"


def _stall_timeout(job: LiveJob, longest_s: float) -> str:
    """Return after how long a stall is reported; and if something has waited for long, how much time is left."""
    if job.stall_after_s is None:
        return ""
    left_s = max(0.0, job.stall_after_s - longest_s)
    left = f", {duration(left_s)} left" if longest_s >= LONG_S else ""
    return f"{describe_stall_timeout(job)}{left}"


def render_incidents(incidents: Sequence[IncidentSummary], open_ids: Collection[str], *, total: int) -> Markup:
    """Return the list of incidents.

    ``incidents``: those to show; ``open_ids``: those that this agent has open; ``total``: how many are stored.
    """
    if not incidents:
        return Markup('<p class="quiet">No incidents so far.</p>')
    rows = [
        (
            _kind(one),
            Markup('<a href="incidents/{}">{}</a>').format(quote(one.id), text(one.summary, 200)),
            _culprits(one) if one.culprit_ranks else "",
            text(one.title, 60),
            moment(one.onset_at, whole_seconds=True),
            _end(one, open_ids),
        )
        for one in incidents
    ]
    shown = table(("Kind", "Summary", "Culprits", "Job", "Since", "Ended"), rows, css="incidents cards")
    older = total - len(incidents)
    return shown + (
        Markup('<p class="quiet">{} older incidents in the state directory</p>').format(older) if older > 0 else ""
    )


def _culprits(incident: IncidentSummary) -> Markup:
    """Return the ranks of the culprits; a long list may be wrapped after each."""
    shown = name_guests(short_ranks(incident.culprit_ranks), incident.names)
    return Markup("<bdi>{}</bdi>").format(Markup(",<wbr>").join(excerpt(shown).split(",")))


def _kind(incident: IncidentSummary) -> Markup:
    proven = ", proven" if incident.proven else ""
    return Markup('<span class="kind {}">{}{}</span>').format(incident.severity, name_kind(incident.kind), proven)


def _end(incident: IncidentSummary, open_ids: Collection[str]) -> Markup:
    if incident.ended_at is not None:
        return moment(incident.ended_at, whole_seconds=True)
    return Markup('<strong class="open">open</strong>') if incident.id in open_ids else Markup("no end recorded")


#: How many incidents are shown, the newest ones.
_MAX_INCIDENTS = 50
_SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "info")
#: The live page is at the agent's root.
_ROOT = ""
_STARTING = Markup('<section class="banner info"><p class="summary">Collecting first samples.</p></section>')
_NO_JOB = Markup(
    '<section class="banner info"><p class="summary">No distributed job is running on this node.</p><p>Start one with '
    "<code>hangwatch run -- torchrun ...</code>, or run <code>eval &#34;$(hangwatch env)&#34;</code> before you launch it. "
    "Jobs that are already running appear here automatically.</p></section>"
)
_UNKNOWN_PROGRESS = JobProgress()


def job_key(job_id: str) -> str:
    """Return an element id for a job, valid for any job name."""
    return "job-" + hashlib.sha256(job_id.encode("utf-8", "backslashreplace")).hexdigest()[:12]


def render_parts(
    view: LiveView, progress: Mapping[str, JobProgress], incidents: Sequence[IncidentSummary]
) -> dict[str, Markup]:
    """Return all parts by element id, in their order on the page.

    ``progress``: by job. ``incidents``: those stored.
    """
    parts: dict[str, Markup] = {}
    jobs = by_urgency(view.jobs)
    if len(jobs) > 1:
        parts["jobs"] = section("Jobs on this node", _overview(jobs, progress))
    stored = {one.id for one in incidents}
    for job in jobs:
        for name, content in _job_parts(job, progress.get(job.id, _UNKNOWN_PROGRESS), stored):
            parts[f"{job_key(job.id)}-{name}"] = with_names(content, job.names)
    if not view.jobs:
        parts["job-none"] = _NO_JOB if view.at_ns else _STARTING
    open_ids = {job.incident.id for job in view.jobs if job.incident is not None}
    listed = render_incidents(incidents[:_MAX_INCIDENTS], open_ids, total=len(incidents))
    parts["incidents"] = section("Incidents", listed)
    return parts


def by_urgency(jobs: Iterable[LiveJob]) -> list[LiveJob]:
    """Return the jobs as the page has them: those with an incident first, most severe first."""

    def urgency(job: LiveJob) -> tuple[int, str]:
        severity = _SEVERITIES.index(job.incident.verdict.severity) if job.incident is not None else len(_SEVERITIES)
        return severity, job.id

    return sorted(jobs, key=urgency)


def _overview(jobs: Sequence[LiveJob], progress: Mapping[str, JobProgress]) -> Markup:
    """Return a table with one row per job."""
    rows = []
    for job in jobs:
        verdict = job.incident.verdict if job.incident is not None else None
        kind = (
            Markup('<span class="kind {}">{}</span>').format(verdict.severity, name_kind(verdict.kind))
            if verdict is not None
            else Markup('<span class="quiet">no hang</span>')
        )
        pace = progress.get(job.id, _UNKNOWN_PROGRESS).pace
        summary = text(verdict.summary, 200) if verdict is not None else describe_pace(job, pace)
        name = Markup('<a href="#{}-head">{}</a>{}').format(
            job_key(job.id), text(job.title, 60), small_id(job.id, job.title)
        )
        rows.append((name, kind, describe_states(_states(job)), summary))
    return table(("Job", "State", "Ranks", "Summary"), rows, css="jobs cards")


def _states(job: LiveJob) -> dict[int, str]:
    return {rank: one.state for rank, one in job.known.items()}


def _job_parts(job: LiveJob, progress: JobProgress, stored: Collection[str]) -> Iterator[tuple[str, Markup]]:
    incident = job.incident
    culprits = incident.verdict.culprit_ranks if incident is not None else ()
    mark = mark_culprit(incident.verdict) if incident is not None else ""
    yield "head", render_heading(job)
    if incident is None:
        yield "verdict", render_healthy(job, progress)
    else:
        yield "verdict", render_verdict(incident, _ROOT, _actions(incident.id) if incident.id in stored else NOTHING)
    yield "ranks", section("Ranks", render_cells(_states(job), culprits, job.world_size, mark))
    yield "reasons", render_reasons(incident.verdict, _ROOT) if incident is not None else NOTHING
    yield (
        "groups",
        section("Progress by process group", render_group_progress(job.groups, progress.groups, job.last_to_join)),
    )
    hangs = incident is not None and incident.verdict.kind != "slow"
    yield "stacks", render_stacks(merge_main_stacks(job.capture), culprits) if hangs and job.capture else NOTHING
    yield "missing", render_missing(incident) if incident is not None else NOTHING


def _actions(incident: str) -> Markup:
    page = f"incidents/{quote(incident)}"
    links = Markup('<a href="{0}">Incident page</a> <a href="{0}/report.html">Report to attach</a>').format(page)
    return copy_link(f"{page}/issue.md") + links


def lay_out(parts: Mapping[str, Markup]) -> Markup:
    """Return the parts, each in a ``div`` with its id."""
    return Markup("").join(Markup('<div class="part" id="{}">{}</div>').format(id, html) for id, html in parts.items())
