"""The live page: every job at a glance, its open incident, its groups' progress, and all incidents. Made of parts by id."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup

from hangwatch.model.live import LiveJob, LiveView
from hangwatch.outputs.archive import IncidentSummary
from hangwatch.outputs.html.cells import describe_states, render_cells
from hangwatch.outputs.html.elements import NOTHING, code, section, text
from hangwatch.outputs.html.fronts import FrontPoint, render_fronts
from hangwatch.outputs.html.incidents import render_incidents
from hangwatch.outputs.html.stacks import render_stacks
from hangwatch.outputs.html.verdict import render_missing, render_verdict
from hangwatch.outputs.stack_tree import merge_main_stacks

#: Of a state directory's incidents, the newest.
_MAX_INCIDENTS = 50
Histories = Mapping[str, Mapping[str, Sequence[FrontPoint]]]


def job_key(job_id: str) -> str:
    """An element id for a job, whatever its name holds."""
    return "job-" + hashlib.sha256(job_id.encode("utf-8", "backslashreplace")).hexdigest()[:12]


def render_parts(view: LiveView, histories: Histories, incidents: Sequence[IncidentSummary]) -> dict[str, Markup]:
    """All parts by element id, in their order on the page. ``histories``: by job and group, oldest point first."""
    parts: dict[str, Markup] = {}
    for job in view.jobs:
        for name, content in _job_parts(job, histories.get(job.id, {})):
            parts[f"{job_key(job.id)}-{name}"] = content
    if not view.jobs:
        words = "No job is running under watch." if view.at_ns else "The first look is under way."
        parts["job-none"] = Markup("<section><p>{}</p></section>").format(words)
    open_ids = {job.incident.id for job in view.jobs if job.incident is not None}
    listed = render_incidents(incidents[:_MAX_INCIDENTS], open_ids, total=len(incidents))
    parts["incidents"] = section("Incidents", listed)
    return parts


def _job_parts(job: LiveJob, history: Mapping[str, Sequence[FrontPoint]]) -> Iterator[tuple[str, Markup]]:
    incident = job.incident
    states = {rank.rank: rank.state for rank in job.ranks}
    culprits = incident.verdict.culprit_ranks if incident is not None else ()
    size = f", {job.world_size} ranks" if job.world_size is not None else ""
    yield (
        "head",
        Markup("<h1>Job {} <span class=quiet>({}{}) {}</span></h1>").format(
            text(job.id, 200), text(job.launcher, 40), size, code(job.command[:200]) if job.command else NOTHING
        ),
    )
    yield "verdict", render_verdict(incident) if incident is not None else _calm(states)
    yield "ranks", section("Ranks", render_cells(states, culprits, job.world_size))
    yield "groups", section("Progress of the groups", render_fronts(job.groups, history))
    seen = incident is not None and job.capture is not None
    yield "stacks", render_stacks(merge_main_stacks(job.capture), culprits) if seen and job.capture else NOTHING
    yield "missing", render_missing(incident) if incident is not None else NOTHING


def _calm(states: Mapping[int, str]) -> Markup:
    return Markup(
        '<section class="banner info"><p class="kind"><strong>No hang</strong></p><p class="summary">Nothing stands in this '
        "job's way: {}.</p></section>"
    ).format(describe_states(states) or "no rank seen yet")


def lay_out(parts: Mapping[str, Markup]) -> Markup:
    """The parts in their places. A job's are together in a section of their own."""
    return Markup("").join(Markup('<div class="part" id="{}">{}</div>').format(id, html) for id, html in parts.items())
