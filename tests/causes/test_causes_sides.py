"""Of ranks that wait for each other the first cause names the side that did it, in the verdict and in all that reads it."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from hangwatch.agent.incidents.history import make_past_hang
from hangwatch.analysis.divergence.relate import Fork, Side
from hangwatch.causes.evidence import at_fork
from hangwatch.causes.knowledge import list_pages, read_page
from hangwatch.diagnosis.document import make_incident
from hangwatch.diagnosis.judged import judge
from hangwatch.diagnosis.registry import explain
from hangwatch.diagnosis.summary import summarize
from hangwatch.diagnosis.verdict import diagnose, name_side
from hangwatch.model.incident import Cause
from hangwatch.model.stacks import Block, Frame
from hangwatch.outputs.wording import show_divergence
from recorded import NAMES, load, renamed, verdict_of
from replicas import enlarged


def test_the_side_is_named_wherever_a_verdict_is_read() -> None:
    """Ranks, sentence, lines and history; the proof is what it was, and says that both can never go on."""
    diagnosis = diagnose(load("tuple_labels"))
    verdict = diagnosis.verdict
    assert (verdict.culprit_ranks, verdict.waiting_ranks, verdict.culprits_from) == ((1,), (0,), "cause")
    assert verdict.summary.startswith("Rank 0 can never get past broadcast of default_pg because of rank 1: ")
    assert verdict.proven
    assert verdict.proof == diagnosis.case.blame.proof
    assert verdict.divergence is not None
    shown = show_divergence(verdict.divergence, verdict).sides
    assert [(side.name, side.ranks) for side in shown] == [("culprit", (1,)), ("others", (0,))]
    past = make_past_hang(make_incident(diagnosis, detected_ns=0, confirmed_ns=None), step=None)
    line = verdict.divergence.culprit
    assert line is not None
    assert past.culprit_ranks == (1,)
    assert past.place.endswith(f":{line.line}")


@pytest.mark.parametrize("name", ["tuple_labels", "guarded_helper", "generate_lengths"])
def test_the_side_does_not_depend_on_numbers(name: str) -> None:
    """The same rank is named whatever it is called."""
    (culprit,) = verdict_of(name).culprit_ranks
    assert diagnose(renamed(load(name), {0: 1, 1: 0})).verdict.culprit_ranks == (1 - culprit,)


def test_half_of_a_larger_job_is_a_side_as_well() -> None:
    """Two and two are a tie as one and one are."""
    verdict = diagnose(enlarged(load("guarded_helper"), {0: (0, 3), 1: (1, 2)})).verdict
    assert (verdict.culprit_ranks, verdict.waiting_ranks, verdict.culprits_from) == ((0, 3), (1, 2), "cause")


@pytest.mark.parametrize("name", ["p2p", "group_order", "two_orders", "group_ring", "ring_of_pairs"])
def test_where_nobody_did_more_than_the_others_all_are_named(name: str) -> None:
    """A send that meets a send, groups in two orders."""
    verdict = verdict_of(name)
    assert verdict.culprits_from == "waits"
    assert len(verdict.culprit_ranks) > 1
    assert verdict.waiting_ranks == ()


@pytest.mark.parametrize("name", NAMES)
def test_a_cause_takes_a_side_only_where_who_waits_names_nobody(name: str) -> None:
    """Where the smaller side is known, it stays named."""
    case = judge(load(name)).case
    if case.blame.waiting or case.blame.shape != "cycle":
        assert name_side(case, explain(case)[0]) is case


def test_ranks_at_a_third_place_are_on_no_side() -> None:
    """Of three places it is not known which two belong together."""
    case = judge(load("group_ring")).case
    first = replace(explain(case)[0], side=case.blame.culprits[0])
    assert name_side(case, first) is case


def test_a_line_of_another_file_is_named_with_its_file() -> None:
    """``line 9`` alone would be read as one of the frame's own file."""
    trainer = Frame("fit", "/opt/venv/lib/trainer.py", 1950, "self.step(batch)")
    block = Block("if", 9, "if self.due:")
    step = Frame("report", "/srv/train/callback.py", 11, "gather(loss)", blocks=(block,))
    onward = Frame("backward", "/srv/train/model.py", 40, "loss.backward()")
    mine, theirs = Side(0, (step, trainer), (step, trainer)), Side(1, (onward, trainer), (onward, trainer))
    case = judge(load("guarded_helper")).case
    below = [e.says for e in at_fork(case, Fork(mine, theirs, "branch", block, 0))]
    assert any("trainer.py:1950" in says and "(under `if self.due:`, train/callback.py:9)" in says for says in below)
    there = Side(0, (step, trainer), (step,))
    own = [e.says for e in at_fork(case, Fork(there, theirs, "branch", block, 0))]
    assert any("callback.py:11" in says and "(under `if self.due:`, line 9)" in says for says in own)


@pytest.mark.parametrize("page", list_pages())
def test_every_title_reads_in_the_summary(page: str) -> None:
    """Behind a colon, of one rank and of several: no title is about an "it" that the sentence has not named."""
    title = read_page(page).title
    assert title.split()[0] not in {"It", "Its", "They", "Their"}
    assert not title.endswith(".")
    cause = Cause(page, title, 0.5, "")
    case = judge(load("blocked_io")).case
    for culprits in ((1,), (0, 1)):
        blame = replace(case.blame, shape="blocked", culprits=culprits)
        said = summarize(replace(case, blame=blame), "stall", cause)
        who = "Ranks 0-1 are" if len(culprits) > 1 else "Rank 1 is"
        why = f": {title[0].lower()}{title[1:]}" if page != "unknown" else ""
        assert said == f"{who} stuck outside of any collective{why}."


@pytest.mark.parametrize("name", NAMES)
def test_alternatives_stand_in_the_order_of_their_rates(name: str) -> None:
    """The one that was right more often first."""
    rates = [cause.confidence for cause in verdict_of(name).alternatives]
    assert rates == sorted(rates, reverse=True)


def test_the_document_says_what_named_the_culprits() -> None:
    """So that programs can tell a side that a cause names from one that the waits name."""
    assert msgspec.to_builtins(verdict_of("tuple_labels"))["culprits_from"] == "cause"
    assert msgspec.to_builtins(verdict_of("rank_conditional"))["culprits_from"] == "waits"
