"""The catalogue's results as one HTML page to search and filter: docs/scenarios.html. Pure.

``browsing.html`` beside this file is the page without its data: style, script, no address to load anything from. The data is
JSON in a script element that is never run; the script puts it into the page as text, so nothing in it is read as markup.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from corpus.entries import Entry
from scenarios.baselines import Baseline
from scenarios.judging import Judgement
from scenarios.launching import HERE
from scenarios.tables import Results

TEMPLATE = HERE / "browsing.html"
_PLACE = "@ROWS@"
_BEGIN, _END = '<script id="rows" type="application/json">', "</script>"


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the page knows of a scenario. ``result``: right, cause, culprit or alarm. ``after_s``: onset to confirmation.

    ``timeout`` and ``analyzer``: what torch's own tools said of the hang, where they were run.
    """

    name: str
    family: str
    describes: str
    ranks: int
    launcher: str
    expected: str
    said: str
    kind: str
    result: str
    proven: bool = False
    after_s: float | None = None
    wrong: tuple[str, ...] = ()
    timeout: str = ""
    analyzer: str = ""


def render_page(results: Results, entries: Sequence[Entry]) -> str:
    """The whole page. ``entries`` are those of the results."""
    by_name = {entry.scenario.name: entry for entry in entries}
    baselines = {baseline.name: baseline for baseline in results.baselines}
    rows = [_row(row, by_name[row.name], baselines.get(row.name)) for row in results.scenarios]
    lines = [msgspec.json.encode(row).decode() for row in rows]
    data = "[\n" + ",\n".join(lines) + "\n]"
    # In JSON these occur within strings only; escaped, they can neither end the script element nor begin a comment.
    return TEMPLATE.read_text().replace(_PLACE, data.replace("<", "\\u003c").replace(">", "\\u003e"))


def parse_page(page: str) -> list[Row]:
    """The rows of a page that ``render_page`` has made."""
    return msgspec.json.decode(page.partition(_BEGIN)[2].partition(_END)[0], type=list[Row])


def _row(row: Judgement, entry: Entry, baseline: Baseline | None) -> Row:
    timeout = analyzer = ""
    if baseline is not None:
        timeout = baseline.timeout_says or f"no error within {baseline.waited_s:.0f} s"
        timeout += f"; names rank {baseline.timeout_names}" if baseline.timeout_names is not None else ""
        analyzer = baseline.analyzer_says
    return Row(
        name=row.name,
        family=row.family,
        describes=entry.scenario.describes,
        ranks=entry.scenario.ranks,
        launcher=entry.scenario.launcher,
        expected=row.expected,
        said=row.said,
        kind=row.kind,
        result=_result(row),
        proven=row.proven,
        after_s=row.confirmed_s,
        wrong=row.wrong,
        timeout=timeout,
        analyzer=analyzer,
    )


def _result(row: Judgement) -> str:
    if row.good:
        return "right"
    if row.culprits_right is None:
        return "alarm"
    return "cause" if row.culprits_right and not row.wrong_proof else "culprit"
