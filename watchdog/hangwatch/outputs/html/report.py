"""``report.html``: an incident as one file that can be attached to a ticket. May import the model and ``outputs.html``.

The file is self-contained: it loads nothing and runs no script.
"""

from __future__ import annotations

from hangwatch.model.capture import Capture
from hangwatch.model.incident import Incident
from hangwatch.outputs.html.incident import render_incident
from hangwatch.outputs.html.shell import render_file
from hangwatch.outputs.stack_tree import StackNode
from hangwatch.outputs.wording import title_of


def render_report(incident: Incident, capture: Capture | None, tree: StackNode | None = None) -> str:
    """The whole document. ``tree``: the capture's merged stacks, if they have been merged already."""
    return render_file(title_of(incident), render_incident(incident, capture, tree))
