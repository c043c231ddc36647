"""One incident, from the verdict to the missing data: the body of the report and of the incident's page.

``report.html`` can be attached to a ticket: it loads nothing and runs no script.
"""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup

from hangwatch.model.capture import Capture
from hangwatch.model.incident import Incident
from hangwatch.model.slowness import SlowLink
from hangwatch.outputs.html.cells import render_cells
from hangwatch.outputs.html.elements import NOTHING, code, fact_list, fold, join, moment, section, text, with_names
from hangwatch.outputs.html.shell import render_file
from hangwatch.outputs.html.stacks import render_native_stacks, render_profiles, render_stacks
from hangwatch.outputs.html.tables import render_groups, render_places
from hangwatch.outputs.html.verdict import describe_job, render_heading, render_missing, render_reasons, render_verdict
from hangwatch.outputs.markdown.report import BRIEF, render_markdown
from hangwatch.outputs.stack_tree import StackNode, merge_main_stacks, merge_native_stacks
from hangwatch.outputs.wording import mark_culprit, title_of


def render_report(incident: Incident, capture: Capture | None, tree: StackNode | None = None) -> str:
    """Return the whole document. ``tree``: the capture's merged stacks, if they have been merged already."""
    return render_file(title_of(incident), render_incident(incident, capture, tree))


def render_incident(
    incident: Incident,
    capture: Capture | None,
    tree: StackNode | None = None,
    *,
    root: str | None = None,
    actions: Markup = NOTHING,
) -> Markup:
    """Return the whole incident.

    ``tree``: the capture's merged stacks, if they have been merged already. ``root``: the relative path to the
    agent's root; None in a file. ``actions``: links below the summary.
    """
    if tree is None and capture is not None:
        tree = merge_main_stacks(capture)
    culprits = incident.verdict.culprit_ranks
    states = {entry.rank: entry.state for entry in incident.ranks}
    ranks = render_cells(states, culprits, incident.job.world_size, mark_culprit(incident.verdict)) + render_places(
        incident
    )
    whole = join(
        [
            render_heading(incident.job),
            render_verdict(incident, root, actions),
            section("Ranks", ranks, id="ranks"),
            render_reasons(incident.verdict, root),
            *_moment(incident, capture, tree),
            render_native_stacks(merge_native_stacks(capture), culprits) if capture is not None else NOTHING,
            render_missing(incident),
            section("Incident", _details(incident) + (_as_issue(incident) if root is None else NOTHING), css="details"),
        ]
    )
    return with_names(whole, incident.verdict.names)


def _moment(incident: Incident, capture: Capture | None, tree: StackNode | None) -> Iterator[Markup]:
    """Yield where all ranks were at the capture; of a job that goes on, where two of them were during some steps."""
    if incident.verdict.kind == "slow":
        slow = capture.slow if capture is not None else None
        yield NOTHING if slow is None or isinstance(slow, SlowLink) else render_profiles(slow)
        return
    yield render_groups(incident)
    yield render_stacks(tree, incident.verdict.culprit_ranks) if tree is not None else NOTHING


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
    return fact_list(facts)


def _as_issue(incident: Incident) -> Markup:
    """Return the text of an issue, to be selected and copied: a file has no script that could copy it."""
    area = Markup('<textarea readonly rows="12" aria-label="Markdown of an issue">\n{}</textarea>')
    area = area.format(render_markdown(incident, BRIEF))
    return fold("Text for an issue on GitHub", area, id="as-issue")
