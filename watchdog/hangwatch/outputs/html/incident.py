"""One incident, from the verdict to the missing data: the body of the report and of the incident's page."""

from __future__ import annotations

from markupsafe import Markup

from hangwatch.model.capture import Capture
from hangwatch.model.incident import Incident
from hangwatch.outputs.html.cells import render_cells
from hangwatch.outputs.html.elements import NOTHING, code, join, moment, section, text, with_names
from hangwatch.outputs.html.stacks import render_native_stacks, render_stacks
from hangwatch.outputs.html.tables import render_groups, render_places
from hangwatch.outputs.html.verdict import describe_job, render_heading, render_missing, render_reasons, render_verdict
from hangwatch.outputs.stack_tree import StackNode, merge_main_stacks, merge_native_stacks


def render_incident(incident: Incident, capture: Capture | None, tree: StackNode | None = None) -> Markup:
    """The whole incident. ``tree``: the capture's merged stacks, if they have been merged already."""
    if tree is None and capture is not None:
        tree = merge_main_stacks(capture)
    culprits = incident.verdict.culprit_ranks
    job = incident.job
    states = {entry.rank: entry.state for entry in incident.ranks}
    ranks = render_cells(states, culprits, incident.job.world_size) + render_places(incident)
    whole = join(
        [
            render_heading(job.id, job.described, job.command),
            render_verdict(incident),
            section("Ranks", ranks, id="ranks"),
            render_reasons(incident.verdict),
            render_groups(incident),
            render_stacks(tree, culprits) if tree is not None else NOTHING,
            render_native_stacks(merge_native_stacks(capture), culprits) if capture is not None else NOTHING,
            render_missing(incident),
            section("Incident", _details(incident), css="details"),
        ]
    )
    return with_names(whole, incident.verdict.names)


def _details(incident: Incident) -> Markup:
    captured = ", ".join(name.replace("_", " ") for name, was in incident.captured.items() if was) or "nothing"
    facts = [
        ("Incident", code(incident.id)),
        ("Job", describe_job(incident)),
        ("Command", code(incident.job.command) if incident.job.command else Markup("unknown")),
        ("Detected", moment(incident.detected_at)),
        ("Confirmed", moment(incident.confirmed_at) if incident.confirmed_at is not None else Markup("not yet")),
        ("Captured", text(captured)),
    ]
    entries = join(Markup("<div><dt>{}</dt><dd>{}</dd></div>").format(name, value) for name, value in facts)
    return Markup('<dl class="facts">{}</dl>').format(entries)
