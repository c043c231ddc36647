"""The list of incidents, newest first."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from urllib.parse import quote

from markupsafe import Markup

from hangwatch.model.numbers import name_guests
from hangwatch.model.text import short_ranks
from hangwatch.outputs.archive import IncidentSummary
from hangwatch.outputs.html.elements import moment, text
from hangwatch.outputs.html.tables import table
from hangwatch.outputs.wording import name_kind


def render_incidents(incidents: Sequence[IncidentSummary], open_ids: Collection[str], *, total: int) -> Markup:
    """``incidents``: those to show; ``open_ids``: those this agent has open; ``total``: how many are stored."""
    if not incidents:
        return Markup('<p class="quiet">No incidents so far.</p>')
    rows = [
        (
            moment(one.onset_at, whole_seconds=True),
            _kind(one),
            Markup('<a href="incidents/{}">{}</a>').format(quote(one.id), text(one.summary, 200)),
            name_guests(short_ranks(one.culprit_ranks), one.names) if one.culprit_ranks else "",
            text(one.job, 60),
            _end(one, open_ids),
        )
        for one in incidents
    ]
    shown = table(("Since", "Kind", "Summary", "Culprits", "Job", "Ended"), rows, css="incidents")
    older = total - len(incidents)
    return shown + (
        Markup('<p class="quiet">{} older incidents in the state directory</p>').format(older) if older > 0 else ""
    )


def _kind(incident: IncidentSummary) -> Markup:
    proven = ", proven" if incident.proven else ""
    return Markup('<span class="kind {}">{}{}</span>').format(incident.severity, name_kind(incident.kind), proven)


def _end(incident: IncidentSummary, open_ids: Collection[str]) -> Markup:
    if incident.ended_at is not None:
        return moment(incident.ended_at, whole_seconds=True)
    return Markup('<strong class="open">open</strong>') if incident.id in open_ids else Markup("no end recorded")
