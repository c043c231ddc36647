"""The verdict on a terminal: complete, narrow enough, and harmless whatever the job wrote into it."""

from __future__ import annotations

import io
import os
from pathlib import Path

import msgspec
import pytest
from examples import hang_incident
from rich.cells import cell_len
from rich.console import Console

from hangwatch.model.incident import Incident, SourceLine, Verdict
from hangwatch.outputs.terminal.verdict import print_verdict

GOLDEN = Path(__file__).parent / "golden"
BUNDLE = Path("/var/lib/hangwatch/incidents/20260528-202637-7c1f")


def shown(incident: Incident, width: int = 80, bundle: Path | None = BUNDLE, **options: object) -> str:
    """What a console of this width gets."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, **options)  # type: ignore[arg-type]
    print_verdict(incident, console, bundle=bundle)
    return stream.getvalue()


@pytest.mark.parametrize("width", [80, 60])
def test_the_verdict_reads_as_its_golden_text(width: int) -> None:
    """The whole page of a real hang at 80 and 60 columns (WRITE_GOLDEN=1 writes it anew)."""
    text = shown(hang_incident(), width)
    golden = GOLDEN / f"verdict_{width}.txt"
    if os.environ.get("WRITE_GOLDEN") == "1":
        golden.write_text(text)
    assert text == golden.read_text()


@pytest.mark.parametrize("width", [40, 60, 79, 80, 120, 300])
def test_no_line_is_wider_than_the_console_or_ends_in_blanks(width: int) -> None:
    """Lines fit, and copied text has no padding; the bundle's path alone is never broken."""
    lines = shown(hang_incident(), width).splitlines()
    assert all(cell_len(line) <= width for line in lines if not line.startswith("Bundle "))
    assert all(line == line.rstrip() for line in lines)
    assert lines[-1] == f"Bundle {BUNDLE}"


def test_both_sides_stand_beside_each_other_where_there_is_room() -> None:
    """At 80 columns the user's lines are on one row, at 60 one after the other."""
    assert any("> trainer.evaluate()" in line and line.count(">") == 2 for line in shown(hang_incident()).splitlines())
    assert not any(" | " in line for line in shown(hang_incident(), 60).splitlines())


def test_colour_is_for_terminals_without_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe gets plain text, a terminal colour, a terminal with NO_COLOR none."""
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b" not in shown(hang_incident())
    assert "\x1b[1;31mDEADLOCK, proven\x1b[0m" in shown(hang_incident(), force_terminal=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "31m" not in shown(hang_incident(), force_terminal=True)


def test_markup_and_escapes_of_the_job_do_no_harm() -> None:
    """A job's name, its node and a source line that hold markup, emoji codes or escape sequences are shown as they are."""
    incident = hang_incident()
    evil = "[red]x[/red] [/] :boom: \x1b[2J\x1b]8;;http://e\x07"
    assert incident.verdict.divergence is not None
    divergence = msgspec.structs.replace(incident.verdict.divergence, culprit=SourceLine(evil, 1, evil, evil, evil))
    incident = msgspec.structs.replace(
        incident,
        job=msgspec.structs.replace(incident.job, id=evil, nodes=(evil,)),
        verdict=msgspec.structs.replace(incident.verdict, summary=evil, waits=(evil,), divergence=divergence),
        missing=(evil,),
    )
    text = shown(incident)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[red]x[/red] [/] :boom: \\x1b[2J\\x1b]8;;http://e\\x07" in text


def test_a_stream_that_knows_no_unicode_gets_escapes() -> None:
    """Under an ASCII locale nothing is lost and nothing raises."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    incident = msgspec.structs.replace(hang_incident(), missing=("größe",))
    print_verdict(incident, Console(file=stream, width=80))
    stream.seek(0)
    assert "gr\\xf6\\xdfe" in stream.read()


def test_a_bare_verdict_is_a_short_page() -> None:
    """What is not known takes no line."""
    incident = msgspec.structs.replace(
        hang_incident(), verdict=Verdict("healthy", False, "info", "No hang found."), missing=()
    )
    assert shown(incident).splitlines()[:2] == ["HEALTHY", "No hang found."]
    assert len(shown(incident).splitlines()) == 7


def test_a_tie_blames_no_side() -> None:
    """Where all ranks are named the columns are two sides and not culprit and others."""
    incident = hang_incident()
    verdict = msgspec.structs.replace(incident.verdict, culprit_ranks=(0, 1))
    text = shown(msgspec.structs.replace(incident, verdict=verdict))
    assert "one side " in text
    assert "culprit" not in text


def test_a_thousand_waits_do_not_bury_the_cause() -> None:
    """Long lists are cut with the number left out."""
    incident = hang_incident()
    waits = tuple(f"rank {rank} waits" for rank in range(1000))
    incident = msgspec.structs.replace(incident, verdict=msgspec.structs.replace(incident.verdict, waits=waits))
    text = shown(incident)
    assert "and 988 more in incident.json" in text
    assert "and 988 more with --format json" in shown(incident, bundle=None)
    assert "rank 12 waits" not in text


def test_without_a_culprit_no_side_is_made_up() -> None:
    """Without a culprit, a waiting rank is shown, and no empty column for a culprit."""
    verdict = msgspec.structs.replace(hang_incident().verdict, culprit_ranks=())
    text = shown(msgspec.structs.replace(hang_incident(), verdict=verdict), 100)
    assert "Where the ranks wait" in text
    assert "culprit" not in text


def test_where_both_sides_stand_at_one_line_the_librarys_line_stands_out() -> None:
    """What tells the sides apart is not the faint part: under one line of the user's it is the line that was called through."""
    incident = hang_incident()
    divergence = incident.verdict.divergence
    assert divergence is not None
    sides = (SourceLine("train.py", 9, "main", "trainer.train()", f"loop (trainer.py:{line})") for line in (30, 44))
    same = msgspec.structs.replace(divergence, **dict(zip(("culprit", "others"), sides, strict=True)))
    apart = msgspec.structs.replace(same, others=SourceLine("train.py", 10, "main", "x", "loop (trainer.py:44)"))
    for one, faint in ((same, False), (apart, True)):
        verdict = msgspec.structs.replace(incident.verdict, divergence=one)
        text = shown(msgspec.structs.replace(incident, verdict=verdict), force_terminal=True)
        assert ("\x1b[2mvia loop" in text) == faint


def test_a_runner_up_says_what_would_have_happened() -> None:
    """The title alone does not tell whether it may be so."""
    verdict = hang_incident().verdict
    (other,) = verdict.alternatives
    said = "It may be that rank 3 had fewer iterations of `for batch in loader:`."
    changed = msgspec.structs.replace(verdict, alternatives=(msgspec.structs.replace(other, explanation=said),))
    text = " ".join(shown(msgspec.structs.replace(hang_incident(), verdict=changed), 120).split())
    assert f"{other.title} ({other.id}, confidence 5%). {said}" in text


def test_a_cause_that_was_never_measured_is_shown_without_a_percentage() -> None:
    """No hang of the catalogue has it, so a number would be made up; in the document it stays a number."""
    verdict = hang_incident().verdict
    assert verdict.cause is not None
    unmeasured = msgspec.structs.replace(verdict.cause, confidence=0.5, measured=False)
    changed = msgspec.structs.replace(verdict, cause=unmeasured, alternatives=(unmeasured,))
    text = " ".join(shown(msgspec.structs.replace(hang_incident(), verdict=changed), 120).split())
    assert text.count("confidence not measured") == 2
    assert "50%" not in text
