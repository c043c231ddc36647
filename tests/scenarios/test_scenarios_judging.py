"""The catalogue's own judgement: it must call wrong what is wrong, or its figures mean nothing."""

from __future__ import annotations

import msgspec
import pytest

from corpus.catalogue import load_catalogue
from corpus.entries import Control, Entry, Scenario, Truth
from hangwatch.model.incident import Cause, Collective, Divergence, Incident, JobEntry, SourceLine, Verdict
from scenarios.__main__ import RESULTS
from scenarios.browsing import parse_page, render_page
from scenarios.judging import Run, judge
from scenarios.tables import Results, meets_bar, render, summarize

PROGRAM = """import torch.distributed as dist

if dist.get_rank() == 0:
    dist.all_reduce(metric)
dist.barrier()
"""


@pytest.fixture
def entry() -> Entry:
    """A hang of three ranks."""
    truth = Truth(
        kinds=("deadlock",),
        proven=True,
        culprits=(0,),
        cause="ranks-diverged",
        waiting=(1, 2),
        operation=("barrier",),
        group=(0, 1, 2),
        sequence=4,
        culprit_line="dist.all_reduce(metric)",
        others_line="dist.barrier()",
    )
    return Entry(
        Scenario(name="metric", describes="a metric on one rank", ranks=3, truth=truth), "family", "train.py", PROGRAM
    )


def right(entry: Entry) -> Verdict:
    """What is to be said of it."""
    lines = [SourceLine(f"/srv/train/{entry.program}", line, "<module>") for line in (4, 5)]
    cause = Cause("ranks-diverged", "", 0.9, "")
    return Verdict(
        "deadlock", True, "critical", "", Collective("barrier", "default_pg", (0, 1, 2), 4, (), ()), (0,), (1, 2),
        Divergence(*lines, group="default_pg", seq=4), cause,
    )  # fmt: skip


def ran(*verdicts: Verdict, status: int = 75) -> Run:
    """A run in which these were reported, two seconds after their onset."""
    job = JobEntry("job", ("node-0",), 3, "torchrun", "train.py")
    onset, confirmed = "2026-11-21T12:00:00.000Z", "2026-11-21T12:00:02.000Z"
    incidents = (Incident("1", job, onset, confirmed, confirmed, None, verdict, (), {}, ()) for verdict in verdicts)
    return Run(status, 9.0, tuple(incidents), "")


def test_what_is_right_is_right(entry: Entry) -> None:
    """Every detail agrees, and the time to confirmation is the incident's."""
    row = judge(entry, ran(right(entry)))
    assert row.good
    assert row.wrong == ()
    assert row.lines_right is True
    assert row.confirmed_s == 2.0


def test_of_a_tie_the_side_that_did_it_is_right_and_so_are_both(entry: Entry) -> None:
    """The other side is wrong, and a side is where the truth has none."""
    sided = _with_truth(entry, culprits=(0, 1), culprit_side=(1,), waiting=())
    both, first, second = (
        msgspec.structs.replace(right(entry), culprit_ranks=named, waiting_ranks=others, culprits_from=by)
        for named, others, by in (((0, 1), (), "waits"), ((0,), (1,), "cause"), ((1,), (0,), "cause"))
    )
    assert judge(sided, ran(both)).wrong == judge(sided, ran(second)).wrong == ()
    assert not judge(sided, ran(first)).culprits_right
    open_ = _with_truth(entry, culprits=(0, 1), waiting=())
    assert judge(open_, ran(both)).culprits_right
    assert not judge(open_, ran(second)).culprits_right


def _with_truth(entry: Entry, **changes: object) -> Entry:
    assert entry.scenario.truth is not None
    truth = msgspec.structs.replace(entry.scenario.truth, **changes)
    return _of(entry, msgspec.structs.replace(entry.scenario, truth=truth))


def _of(entry: Entry, scenario: Scenario) -> Entry:
    return msgspec.structs.replace(entry, scenario=scenario)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"culprit_ranks": (1,)}, "culprits [1] and not [0]"),
        ({"culprit_ranks": (0, 1)}, "culprits [0, 1] and not [0]"),
        ({"waiting_ranks": (1,)}, "waiting [1] and not [1, 2]"),
        ({"kind": "stall"}, "kind stall and not deadlock"),
        ({"proven": False}, "proven False and not True"),
        ({"collective": None}, "operation None and not barrier"),
        ({"divergence": None}, "first difference None and not 4"),
        ({"cause": Cause("early-exit", "", 0.9, "")}, "cause early-exit and not ranks-diverged"),
        ({"cause": None}, "cause None and not ranks-diverged"),
    ],
)
def test_every_difference_is_said(entry: Entry, change: dict[str, object], said: str) -> None:
    """Whatever is not as the truth has it stands in the row."""
    row = judge(entry, ran(msgspec.structs.replace(right(entry), **change)))
    assert said in row.wrong
    assert row.good == (not {"culprit_ranks", "cause"} & set(change))


def test_a_line_of_another_file_is_wrong(entry: Entry) -> None:
    """The right number in the wrong file does not count."""
    elsewhere = SourceLine("/srv/other.py", 4, "<module>")
    verdict = right(entry)
    assert verdict.divergence is not None
    divergence = msgspec.structs.replace(verdict.divergence, culprit=elsewhere)
    row = judge(entry, ran(msgspec.structs.replace(verdict, divergence=divergence)))
    assert row.lines_right is False


def test_a_proof_that_names_somebody_else_is_a_wrong_proof(entry: Entry) -> None:
    """It counts as such, and no share makes up for it."""
    rows = [judge(entry, ran(msgspec.structs.replace(right(entry), culprit_ranks=(2,))))]
    rows += [judge(entry, ran(right(entry)))] * 99
    assert rows[0].wrong_proof
    figures = summarize([entry], rows, [], {}).figures
    assert figures.wrong_proofs == 1
    assert not meets_bar(figures)
    assert meets_bar(summarize([entry], rows[1:], [], {}).figures)


def test_silence_is_wrong_of_a_hang_and_right_of_a_control(entry: Entry) -> None:
    """No incident at all."""
    hang = judge(entry, ran(status=0))
    assert not hang.good
    control = _of(entry, Scenario(name="fine", describes="", ranks=2, control=Control()))
    assert judge(control, ran(status=0)).good
    assert not judge(control, ran(status=1)).good
    alarmed = judge(control, ran(right(entry)))
    assert alarmed.false_alarm
    assert not meets_bar(summarize([control], [alarmed], [], {}).figures)


def test_a_warning_is_no_alarm_where_it_is_allowed(entry: Entry) -> None:
    """A straggler of a control that has one."""
    warning = msgspec.structs.replace(right(entry), kind="straggler", proven=False)
    for allowed in (True, False):
        scenario = Scenario(name="slow", describes="", ranks=2, control=Control(warning=allowed))
        row = judge(_of(entry, scenario), ran(warning, status=0))
        assert row.good == allowed
        assert not row.false_alarm


def test_the_summary_shows_the_confusion(entry: Entry) -> None:
    """What was taken for what stands out in the table."""
    other = msgspec.structs.replace(right(entry), cause=Cause("early-exit", "", 0.9, ""))
    rows = [judge(entry, ran(right(entry))), judge(entry, ran(other))]
    page = render(summarize([entry], rows, [], {}), [entry])
    assert "| `ranks-diverged` | ranks-diverged 1, **early-exit 1** |" in page
    assert "| cause first | 50.0% | 90% |" in page


def test_the_page_shows_every_scenario_as_text(entry: Entry) -> None:
    """Its description, what was reported and what differs, with nothing in it that could end the element it stands in."""
    hostile = "</script><img src=x onerror=alert(1)>"
    scenario = msgspec.structs.replace(entry.scenario, describes=hostile)
    wrong = msgspec.structs.replace(right(entry), culprit_ranks=(2,))
    rows = [judge(_of(entry, scenario), ran(wrong))]
    page = render_page(summarize([entry], rows, [], {}), [_of(entry, scenario)])
    assert hostile not in page
    (row,) = parse_page(page)
    assert (row.describes, row.result) == (hostile, "culprit")
    assert row.wrong == ("culprits [2] and not [0]",)


def test_the_results_in_the_documentation_agree() -> None:
    """Summary and page are what the generator makes of docs/scenarios.json, and hold every scenario of it."""
    results = msgspec.json.decode(RESULTS.read_bytes(), type=Results)
    names = {row.name for row in results.scenarios}
    entries = [entry for entry in load_catalogue() if entry.scenario.name in names]
    summary, page = (RESULTS.with_suffix(suffix).read_text() for suffix in (".md", ".html"))
    assert summary == render(results, entries)
    assert page == render_page(results, entries)
    assert [(row.name, row.family, row.said) for row in parse_page(page)] == [
        (row.name, row.family, row.said) for row in results.scenarios
    ]
    assert {row.family for row in results.scenarios} <= {entry.family for entry in entries}
    assert len(summary.splitlines()) < 200
    shell = page.partition('<script id="rows"')[0]
    assert not [word for word in ("http", "src=", "@import", "url(") if word in shell]


def test_the_catalogue_can_be_read() -> None:
    """Every file: names are unique, each has one truth, and the lines it names are in its program, once."""
    assert load_catalogue()
    assert load_catalogue(["control"])
    assert not load_catalogue(["no such scenario"])
