"""``hangwatch explain CAUSE``: what is known of a cause, from its page."""

from __future__ import annotations

import click

from hangwatch.cli.options import SectionCommand

#: Longer lines of prose are hard to read.
_MAX_WIDTH = 100


@click.command(cls=SectionCommand)
@click.argument("cause", required=False)
def explain(cause: str | None) -> None:
    """Explain a cause, and what to do about it.

    CAUSE: the id that a verdict shows. Without CAUSE, list all causes.
    """
    import difflib

    from hangwatch.causes.knowledge import FORMER, list_pages, read_page, read_text
    from hangwatch.cli.common import stdout_console
    from hangwatch.model.errors import UserError
    from hangwatch.outputs.terminal.console import Span
    from hangwatch.outputs.terminal.layout import table
    from hangwatch.outputs.terminal.markdown import render_page

    console = stdout_console()
    known = list_pages()
    cause = FORMER.get(cause, cause) if cause is not None else None
    if cause is None:
        console.print(table(("CAUSE", "WHAT HAPPENED"), [(Span(id), Span(read_page(id).title)) for id in known]))
    elif cause in known:
        console.print(render_page(read_text(cause), min(console.width, _MAX_WIDTH)))
    else:
        near = difflib.get_close_matches(cause, known, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UserError(f"no cause named {cause!r}; {hint}List them with: hangwatch explain")
