"""An incident in short texts, as alerts, chats, metrics and dashboards show it: who, where, why, what to do first, where to look.

Pure; may import the model and the words that all outputs share.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from hangwatch.model.incident import Cause, Incident, JobEntry, Verdict
from hangwatch.model.numbers import name_guests
from hangwatch.model.text import number_ranks, short_place
from hangwatch.outputs.sanitize import clean, excerpt
from hangwatch.outputs.wording import ShownSide, name_nodes, show_divergence

#: Stands for the node's name in ``external_url``: agents of all nodes may share one settings file.
NODE_FIELD = "{node}"
#: Stands for the page in ``runbook_base_url``: ``causes/rank-died``. Prometheus' rules replace it by the same name.
PAGE_FIELD = "{page}"
#: One line of a chat on a phone is much shorter; this only bounds what a job's own text can do.
_LINE_CHARS = 200


class Links(msgspec.Struct, frozen=True):
    """Where links lead.

    ``page``: the address of this agent's page, without a slash at its end; empty if it has none. ``runbook``: the
    address of a page of the documentation, with ``{page}`` in place of its name; empty if nothing is published.
    ``local``: only programs of the same machine reach the page. ``open``: the page needs no token, so whoever reaches
    ``/metrics`` may see code there, too.
    """

    page: str = ""
    runbook: str = ""
    local: bool = False
    open: bool = False

    def find_incident(self, id: str) -> str:
        """Return the address of an incident's page; empty if there is none."""
        return f"{self.page}/incidents/{id}" if self.page else ""

    def find_cause(self, id: str) -> str:
        """Return the address of a cause's page; empty if nothing is published."""
        return self.runbook.replace(PAGE_FIELD, f"causes/{id}")


def make_links(
    external_url: str, runbook_base_url: str, node: str, own_url: str = "", *, local: bool = False, open: bool = False
) -> Links:
    """Return the links of an agent on ``node`` that listens at ``own_url``, by its settings.

    ``local``, ``open``: see ``Links``.
    """
    base = runbook_base_url.rstrip("/")
    runbook = base if PAGE_FIELD in base or not base else f"{base}/{PAGE_FIELD}"
    page = (external_url.replace(NODE_FIELD, node) or own_url).rstrip("/")
    return Links(page, runbook, local and not external_url, open)


class Briefing(msgspec.Struct, frozen=True):
    """One incident. Every text is one line that is safe to show, and empty where nothing is known.

    ``job_text``: what the job is called, its script, where it runs, its user, its size. ``culprit``: ``rank 3 on gpu-18``.
    ``sides``: a line for each side of the divergence, ``Culprit: rank 3 at train.py:42: dist.barrier()``. ``culprit_line`` and
    ``others_line`` are the same without their first word; where all ranks are culprits, ``culprit_line`` has both sides.
    ``title``: the cause's; ``why``: its explanation. ``steps``: the remedy, a line each. ``more``: the runbook's address, else
    the command that prints it.
    """

    name: str
    script: str
    job_text: str
    summary: str
    culprit: str
    sides: tuple[str, ...]
    culprit_line: str
    others_line: str
    title: str
    why: str
    steps: tuple[str, ...]
    page_url: str
    runbook_url: str
    more: str

    @property
    def remedy(self) -> str:
        """Return all steps of the remedy in one line."""
        return " ".join(f"{number}. {step}" for number, step in enumerate(self.steps, 1))


def brief(incident: Incident, links: Links, *, code: bool = True) -> Briefing:
    """Return the texts of an incident.

    Without ``code`` lines are named by file, number and function alone, and a command line does not stand in for a script.
    """
    verdict, job = incident.verdict, incident.job
    sides = show_divergence(verdict.divergence, verdict).sides if verdict.divergence is not None else ()
    culprit = _describe_culprit(incident)
    named = culprit if len(job.nodes) > 1 else ""
    lines = [_describe_side(side, verdict, named if side.name == "culprit" else "", code=code) for side in sides]
    cause, runbook_url = verdict.cause, links.find_cause(_name_cause(verdict.cause))
    program = job.script or (job.command if code else "")
    tied = bool(sides) and set(verdict.waiting_ranks) <= set(verdict.culprit_ranks)
    named_alone = len(sides) == 1 and sides[0].name == "culprit"
    shown = [f"{side.name.capitalize()}: {line}" for side, line in zip(sides, lines, strict=True) if line]
    return Briefing(
        name=excerpt(job.title, _LINE_CHARS),
        script=excerpt(program, _LINE_CHARS),
        job_text=excerpt(", ".join(_describe_job(job, program)), _LINE_CHARS),
        summary=clean(verdict.summary),
        culprit=culprit,
        sides=tuple(shown) or ((f"Culprit: {culprit}",) if culprit else ()),
        culprit_line="; ".join(filter(None, lines)) if tied else lines[0] if len(lines) == 2 or named_alone else "",
        others_line="" if tied or named_alone else lines[-1] if lines else "",
        title=clean(cause.title) if cause is not None else "",
        why=clean(cause.explanation) if cause is not None else "",
        steps=tuple(clean(step) for step in cause.remedy) if cause is not None else (),
        page_url=clean(links.find_incident(incident.id)),
        runbook_url=clean(runbook_url),
        more=clean(runbook_url) or f"hangwatch explain {_name_cause(cause)}",
    )


def name_ranks(verdict: Verdict, ranks: Iterable[int]) -> str:
    """Return ranks as people read them, ``ranks 0-3``, and processes of other jobs by their names."""
    return name_guests(number_ranks(tuple(ranks)), verdict.names)


def _name_cause(cause: Cause | None) -> str:
    return cause.id if cause is not None else "unknown"


def _describe_job(job: JobEntry, program: str) -> list[str]:
    """Return the parts of a job's description; no part twice."""
    parts = [
        job.title,
        program if program.rpartition("/")[2] != job.title else "",
        f"Slurm job {job.slurm_job}" if job.slurm_job else "",
        f"pod {job.namespace}/{job.pod}" if job.namespace and job.pod else job.pod and f"pod {job.pod}",
        f"user {job.user}" if job.user else "",
        f"{job.world_size} rank{'s' * (job.world_size != 1)}" if job.world_size is not None else "",
    ]
    return [part for part in parts if part]


def _describe_culprit(incident: Incident) -> str:
    ranks = incident.verdict.culprit_ranks
    if not ranks:
        return ""
    return clean(name_ranks(incident.verdict, ranks) + name_nodes(incident, ranks))


def _describe_side(side: ShownSide, verdict: Verdict, named: str, *, code: bool) -> str:
    """Return ``rank 3 at train.py:42: dist.barrier()``; empty where neither ranks nor a line are known.

    ``named``: what stands in place of the side's ranks, if it is not empty.
    """
    who = named or (name_ranks(verdict, side.ranks) if side.ranks else "")
    line = side.line
    if line is None:
        return clean(f"{who} in {side.op}" if who and side.op else who)
    via = f" (via {line.via})" if line.via and verdict.divergence is not None and verdict.divergence.same_line else ""
    what = f": {line.source.strip()}" if code and line.source else f" in {line.function}"
    at = f"{short_place(line.file, line.line)}{what}{via}"
    return excerpt(f"{who} at {at}" if who else at, _LINE_CHARS)
