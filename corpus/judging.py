"""Holds what a tool says of a hang against its truth. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from corpus.entries import Entry, Truth
from hangwatch.model.incident import Verdict

#: What ends the name of a process beside the job.
_PID = re.compile(r"\[\d+\]$")


Named = Literal["exact", "some", "wrong", "nobody"]


class Answer(msgspec.Struct, frozen=True):
    """What a tool says of a hang.

    ``culprits``: global ranks, and names of processes that are no ranks of the job (``engine/0``). ``causes``: ids of causes,
    the likeliest first; only three count. ``proven``: whether it says that this cannot be otherwise. ``takes_side``: whether,
    of ranks that wait for each other, ``culprits`` are those that did it, and not all.
    """

    culprits: tuple[int | str, ...] = ()
    causes: tuple[str, ...] = ()
    proven: bool = False
    takes_side: bool = False


class Mark(msgspec.Struct, frozen=True):
    """What is right of an answer: who, the first cause, one of three causes. ``wrong_proof``: it is proven, and not so.

    ``named``: ``exact`` if the culprits are those of the truth, ``some`` if one of them is, ``wrong`` if none of them is, or
    ``nobody``.
    """

    named: Named
    first: bool
    three: bool
    wrong_proof: bool

    @property
    def culprits(self) -> bool:
        """True if exactly the culprits are named."""
        return self.named == "exact"

    @property
    def right(self) -> bool:
        """True if culprits and first cause are right, and no proof is wrong."""
        return self.culprits and self.first and not self.wrong_proof


def mark(entry: Entry, answer: Answer) -> Mark:
    """Return what is right of an answer to a hang."""
    truth = entry.scenario.truth
    assert truth is not None, f"{entry.name} is no hang"
    named = _named({*answer.culprits}, {*culprits_of(truth, answer.takes_side)})
    return Mark(
        named=named,
        first=answer.causes[:1] == (truth.cause,),
        three=truth.cause in answer.causes[:3],
        wrong_proof=answer.proven and not (named == "exact" and truth.proven),
    )


def _named(said: set[int | str], true: set[int | str]) -> Named:
    if said == true:
        return "exact"
    return "nobody" if not said else "some" if said & true else "wrong"


def culprits_of(truth: Truth, takes_side: bool) -> tuple[int | str, ...]:
    """Return who is rightly named: of a tie both sides, or the one that did it where the answer takes a side."""
    return truth.culprit_side if takes_side and truth.culprit_side is not None else truth.culprits


def answer_of(verdict: Verdict) -> Answer:
    """Return what a verdict of hangwatch says."""
    return Answer(
        culprits=tuple(processes(verdict, verdict.culprit_ranks)),
        causes=tuple(cause.id for cause in (verdict.cause, *verdict.alternatives) if cause is not None),
        proven=verdict.proven,
        takes_side=verdict.culprits_from == "cause",
    )


def processes(verdict: Verdict, ranks: Iterable[int]) -> list[int | str]:
    """Return ranks, and other processes by their names, without the pid: it differs from run to run."""
    names = {rank: _PID.sub("", name) for rank, name in verdict.names.items()}
    return in_order(names.get(rank, rank) for rank in ranks)


def in_order(found: Iterable[int | str]) -> list[int | str]:
    """Return ranks by number, then names."""
    return sorted(found, key=lambda one: (isinstance(one, str), one))
