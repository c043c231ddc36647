"""The verdict: kind, culprits, place, cause and remedy, in the order in which an engineer on call needs them.

The reasoning (proof, who waits for whom, other possible causes) is a separate part, shown below the ranks.
"""

from __future__ import annotations

from collections.abc import Collection

from markupsafe import Markup

from hangwatch.model.incident import Cause, Collective, Divergence, Evidence, Incident, JobEntry, Verdict
from hangwatch.model.live import LiveJob
from hangwatch.model.text import number_ranks
from hangwatch.outputs.html.cause_page import fold_page, name_cause
from hangwatch.outputs.html.elements import (
    NOTHING,
    code,
    fact_list,
    fold,
    join,
    link,
    listing,
    moment,
    plain,
    prose,
    section,
    short_command,
    small_id,
    source_line,
    tell_hidden,
    text,
)
from hangwatch.outputs.job_history import describe_history
from hangwatch.outputs.second_look import describe_second_look
from hangwatch.outputs.wording import ShownSide, describe_proof, name_kind, say_confidence, show_divergence

#: Longer lists are truncated; incident.json has all items.
_MAX_ITEMS = 40
#: Steps of the remedy that are shown at once: the first ones fit best.
_FIRST_STEPS = 3
#: Characters of the summary; one that names hundreds of scattered ranks is truncated.
_MAX_SUMMARY = 600


def render_verdict(incident: Incident, root: str | None, actions: Markup = NOTHING) -> Markup:
    """Return banner, diverging source lines, cause and remedy.

    ``root``: the relative path to the agent's root; None in a file. ``actions``: links below the summary.
    """
    verdict = incident.verdict
    return join(
        [
            _banner(incident, actions),
            _divergence(verdict.divergence, verdict) if verdict.divergence is not None else NOTHING,
            _cause(verdict.cause, root) if verdict.cause is not None else NOTHING,
        ]
    )


def _banner(incident: Incident, actions: Markup) -> Markup:
    """Return kind, whether it is proven, summary, ranks, operation, times and links."""
    verdict = incident.verdict
    facts = [
        ("Culprit", number_ranks(verdict.culprit_ranks) if verdict.culprit_ranks else ""),
        ("Waiting", number_ranks(verdict.waiting_ranks) if verdict.waiting_ranks else ""),
        ("Operation", _operation(verdict.collective) if verdict.collective is not None else ""),
        ("Since", _times(incident)),
        *(("History", text(line)) for line in describe_history(incident.history)),
        ("Action", text(action) if (action := describe_second_look(incident)) else ""),
    ]
    return Markup(
        '<section class="banner {severity}" id="verdict"><p class="kind"><strong>{kind}</strong>{proven}</p>'
        '<p class="summary">{summary}</p>{facts}{actions}</section>'
    ).format(
        severity=verdict.severity,
        kind=name_kind(verdict.kind),
        proven=_proven(verdict),
        summary=text(verdict.summary, _MAX_SUMMARY),
        facts=fact_list(facts),
        actions=Markup('<p class="actions">{}</p>').format(actions) if actions else NOTHING,
    )


def _proven(verdict: Verdict) -> Markup:
    proof = describe_proof(verdict)
    if not proof:
        return NOTHING
    return Markup(' <span class="chip">{}{}</span>').format(proof, ": it can never resolve" if verdict.proven else "")


def _times(incident: Incident) -> Markup:
    times = moment(incident.onset_at, whole_seconds=True)
    if incident.ended_at is not None:
        return times + Markup(", ended ") + moment(incident.ended_at, whole_seconds=True)
    return times + Markup('<span class="elapsed" data-since="{}"></span>').format(plain(incident.onset_at, 40))


def _operation(collective: Collective) -> Markup:
    number = f" number {collective.seq}" if collective.seq is not None else ""
    kinds = (*collective.dtypes, *[""] * len(collective.sizes))
    tensors = [f"{kind}[{', '.join(map(str, size))}]" for kind, size in zip(kinds, collective.sizes, strict=False)]
    of = Markup(" of {}").format(code(", ".join(tensors[:4]))) if tensors else NOTHING
    return code(collective.op) + of + Markup("{} in {}").format(number, code(collective.group))


def _divergence(divergence: Divergence, verdict: Verdict) -> Markup:
    shown = show_divergence(divergence, verdict)
    if len(shown.sides) == 1:
        css = "culprit" if shown.sides[0].name == "culprit" else "others"
        return section(shown.title, _side(shown.sides[0], css))
    sides = join(_side(one, css) for one, css in zip(shown.sides, ("culprit", "others"), strict=True))
    css = "sides via-differs" if divergence.same_line else "sides"
    return section(text(shown.title), Markup('<div class="{}">{}</div>').format(css, sides))


def _side(side: ShownSide, css: str) -> Markup:
    name = side.name.capitalize()
    who = f"{name}: {number_ranks(side.ranks)}" if side.ranks else name
    operation = Markup('<p class="op">in {}</p>').format(code(side.op)) if side.op is not None else NOTHING
    where = (
        source_line(side.line) if side.line is not None else Markup('<p class="quiet">no line of the program seen</p>')
    )
    return Markup('<div class="side {}"><h3>{}</h3>{}{}</div>').format(css, who, where, operation)


def _cause(cause: Cause, root: str | None) -> Markup:
    title = Markup("Cause: {}").format(text(cause.title))
    certainty = Markup('<p class="quiet">{}{}</p>').format(name_cause(cause.id, root), say_confidence(cause))
    explanation = Markup("<p>{}</p>").format(prose(cause.explanation)) if cause.explanation else NOTHING
    remedy = listing((prose(step) for step in cause.remedy[:_FIRST_STEPS]), "ol")
    others = cause.remedy[_FIRST_STEPS:]
    remedy += fold(f"Other remedies ({len(others)})", listing(prose(step) for step in others))
    todo = Markup('<div class="todo"><h3>What to do</h3>{}</div>').format(remedy) if remedy else NOTHING
    references = listing(link(address) for address in cause.references)
    more = Markup("<h3>See also</h3>{}").format(references) if references else NOTHING
    evidence = fold(f"Evidence ({len(cause.evidence)})", _evidence(cause.evidence), id="evidence", opened=True)
    why = Markup("<div>{}{}{}</div>").format(certainty, explanation, evidence)
    page = fold_page(cause.id) if root is None else NOTHING
    shown = Markup('<div class="cause">{}<div>{}{}</div></div>{}').format(why, todo, more, page)
    return section(title, shown, id="cause")


def _evidence(items: Collection[Evidence]) -> Markup:
    def one(item: Evidence) -> Markup:
        who = f"rank {item.rank}, " if item.rank is not None else ""
        return Markup('<span class="source">{}{}:</span> {}').format(who, text(item.source), prose(item.says))

    return listing((one(item) for item in list(items)[:_MAX_ITEMS]), css="evidence") + tell_hidden(
        len(items) - _MAX_ITEMS
    )


def render_reasons(verdict: Verdict, root: str | None) -> Markup:
    """Return the reasoning: proof, who waits for whom, other possible causes. ``root``: see ``render_verdict``."""
    proof = Markup("<p>{}</p>").format(text(verdict.proof)) if verdict.proof else NOTHING
    waits = listing(text(wait) for wait in verdict.waits[:_MAX_ITEMS]) + tell_hidden(len(verdict.waits) - _MAX_ITEMS)
    parts = [
        ("Why it can never resolve", proof),
        ("Who waits for whom", waits),
        ("Other possible causes", _alternatives(verdict.alternatives, root)),
    ]
    shown = join(Markup("<div><h3>{}</h3>{}</div>").format(name, part) for name, part in parts if part)
    return section("Reasoning", Markup('<div class="reasons">{}</div>').format(shown) if shown else NOTHING)


def _alternatives(causes: Collection[Cause], root: str | None) -> Markup:
    def one(cause: Cause) -> Markup:
        said = Markup('{} <span class="quiet">({})</span>').format(text(cause.title), name_cause(cause.id, root))
        why = Markup("<p>{}</p>").format(prose(cause.explanation)) if cause.explanation else NOTHING
        return said + why

    return listing(one(cause) for cause in list(causes)[:_MAX_ITEMS])


def render_missing(incident: Incident) -> Markup:
    """Return what could not be captured, and why."""
    items = listing(text(item) for item in incident.missing[:_MAX_ITEMS]) + tell_hidden(
        len(incident.missing) - _MAX_ITEMS
    )
    return section("Missing data", items)


def render_heading(job: JobEntry | LiveJob) -> Markup:
    """Return a job's title, launcher, size, command and id."""
    command = code(short_command(job.command)[:200]) if job.command else NOTHING
    below = command + small_id(job.id, job.title)
    return Markup('<h1>{} <span class="quiet">{}</span></h1>{}').format(
        text(job.title, 200),
        text(job.described, 120),
        Markup('<p class="command">{}</p>').format(below) if below else NOTHING,
    )


def describe_job(incident: Incident) -> Markup:
    """Return the job in one line."""
    job = incident.job
    nodes = f" on {', '.join(job.nodes[:8])}" if job.nodes else ""
    more = f" and {len(job.nodes) - 8} more nodes" if len(job.nodes) > 8 else ""
    return Markup("{}, {}{}{}").format(
        text(job.title, 200), text(job.described), text(nodes + more, 400), small_id(job.id, job.title)
    )
