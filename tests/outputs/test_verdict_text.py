"""The verdict on a terminal: complete, narrow enough, and harmless whatever the job wrote into it."""

from __future__ import annotations

import io
import os
from pathlib import Path

import msgspec
import pytest
from examples import hang_incident

from hangwatch.model.incident import Incident, SourceLine, Verdict
from hangwatch.outputs.terminal.console import Console
from hangwatch.outputs.terminal.verdict import print_verdict

GOLDEN = Path(__file__).parent / "golden"
BUNDLE = Path("/var/lib/hangwatch/incidents/20260528-202637-7c1f")


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        """It is one."""
        return True


def shown(
    incident: Incident,
    width: int = 80,
    bundle: Path | None = BUNDLE,
    *,
    verbose: bool = False,
    page: str = "",
    terminal: bool = False,
) -> str:
    """What a console of this width gets."""
    stream = Terminal() if terminal else io.StringIO()
    print_verdict(incident, Console(stream, width=width), bundle=bundle, page=page, verbose=verbose)
    return stream.getvalue()


@pytest.mark.parametrize(("width", "verbose"), [(80, False), (60, False), (80, True), (60, True)])
def test_the_verdict_reads_as_its_golden_text(width: int, verbose: bool) -> None:
    """The text of a real hang at 80 and 60 columns, short and whole (WRITE_GOLDEN=1 writes it anew)."""
    text = shown(hang_incident(), width, verbose=verbose)
    golden = GOLDEN / f"verdict_{'whole_' if verbose else ''}{width}.txt"
    if os.environ.get("WRITE_GOLDEN") == "1":
        golden.write_text(text)
    assert text == golden.read_text()


@pytest.mark.parametrize("width", [80, 110, 300])
def test_the_short_verdict_has_ten_to_fifteen_lines(width: int) -> None:
    """Verdict, both lines of code, cause, first remedy, page and bundle, each once; what it leaves out is in the whole one."""
    text = shown(hang_incident(), width, page="http://127.0.0.1:9753/")
    assert 10 <= len(text.splitlines()) <= 18
    assert text.count("> trainer.evaluate()") == 2
    for once in ("never joins", "(confidence 93%)", "explain tuple-labels-gather", "Page ", "Bundle ", "Keep labels"):
        assert text.count(once) == 1, once
    whole = shown(hang_incident(), width, verbose=True)
    for more in ("Who waits for whom", "Evidence", "Other possible causes", "Missing data"):
        assert more in whole
        assert more not in text


@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize("width", [40, 60, 79, 80, 120, 300])
def test_no_line_is_wider_than_the_console_or_ends_in_blanks(width: int, verbose: bool) -> None:
    """Lines fit, and copied text has no padding; the bundle's path alone is never broken."""
    lines = shown(hang_incident(), width, verbose=verbose).splitlines()
    assert all(len(line) <= width for line in lines if not line.startswith("Bundle "))
    assert all(line == line.rstrip() for line in lines)
    assert lines[-1] == f"Bundle    {BUNDLE}"


def test_colour_is_for_terminals_without_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe gets plain text, a terminal colour, a terminal with NO_COLOR none."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b" not in shown(hang_incident())
    assert "\x1b[1;31mDEADLOCK, proven\x1b[0m" in shown(hang_incident(), terminal=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in shown(hang_incident(), terminal=True)
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in shown(hang_incident(), terminal=True)


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
    for verbose in (False, True):
        text = shown(incident, verbose=verbose)
        assert "\x1b" not in text
        assert "\x07" not in text
        assert "[red]x[/red] [/] :boom: \\x1b[2J\\x1b]8;;http://e\\x07" in text


def test_a_stream_that_knows_no_unicode_gets_escapes() -> None:
    """Under an ASCII locale nothing is lost and nothing raises."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    incident = msgspec.structs.replace(hang_incident(), missing=("größe",))
    print_verdict(incident, Console(stream, width=80), verbose=True)
    stream.seek(0)
    assert "gr\\xf6\\xdfe" in stream.read()


def test_a_bare_verdict_is_a_short_page() -> None:
    """What is not known takes no line."""
    incident = msgspec.structs.replace(
        hang_incident(), verdict=Verdict("healthy", False, "info", "No hang found."), missing=()
    )
    assert shown(incident).splitlines() == [
        "HEALTHY: llama-sft (torchrun, 2 ranks) on gpu-17", "No hang found.", "", f"Bundle    {BUNDLE}",
    ]  # fmt: skip
    assert len(shown(incident, verbose=True).splitlines()) == 5


def test_a_verdict_without_a_cause_says_what_was_not_seen() -> None:
    """Missing data is a reason why no cause was found; with a cause only stacks that may not be read are named."""
    incident = msgspec.structs.replace(hang_incident(), missing=("gpu: none", "stacks of rank 0: not permitted"))
    assert "Not seen  stacks of rank 0: not permitted\n" in shown(incident)
    verdict = msgspec.structs.replace(incident.verdict, cause=None, alternatives=())
    assert "Not seen  gpu: none (and 1 more)\n" in shown(msgspec.structs.replace(incident, verdict=verdict))


def test_a_tie_blames_no_side() -> None:
    """Where all ranks are named the columns are two sides and not culprit and others."""
    incident = hang_incident()
    verdict = msgspec.structs.replace(incident.verdict, culprit_ranks=(0, 1))
    text = shown(msgspec.structs.replace(incident, verdict=verdict))
    assert "one side: " in text
    assert "culprit" not in text


def test_a_thousand_waits_do_not_bury_the_cause() -> None:
    """Long lists are cut with the number left out."""
    incident = hang_incident()
    waits = tuple(f"rank {rank} waits" for rank in range(1000))
    incident = msgspec.structs.replace(incident, verdict=msgspec.structs.replace(incident.verdict, waits=waits))
    text = shown(incident, verbose=True)
    assert "and 988 more in incident.json" in text
    assert "and 988 more with --json" in shown(incident, bundle=None, verbose=True)
    assert "rank 12 waits" not in text


def test_without_a_culprit_no_side_is_made_up() -> None:
    """Without a culprit, a waiting rank is shown, and no empty column for a culprit."""
    verdict = msgspec.structs.replace(hang_incident().verdict, culprit_ranks=())
    text = shown(msgspec.structs.replace(hang_incident(), verdict=verdict), 100)
    assert "  waiting: finetune" in text
    assert "culprit" not in text


def test_where_both_sides_stand_at_one_line_the_librarys_line_stands_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tells the sides apart is not the faint part: under one line of the user's it is the line that was called through."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    incident = hang_incident()
    divergence = incident.verdict.divergence
    assert divergence is not None
    sides = (SourceLine("train.py", 9, "main", "trainer.train()", f"loop (trainer.py:{line})") for line in (30, 44))
    same = msgspec.structs.replace(divergence, **dict(zip(("culprit", "others"), sides, strict=True)))
    apart = msgspec.structs.replace(same, others=SourceLine("train.py", 10, "main", "x", "loop (trainer.py:44)"))
    for one, faint in ((same, False), (apart, True)):
        verdict = msgspec.structs.replace(incident.verdict, divergence=one)
        text = shown(msgspec.structs.replace(incident, verdict=verdict), terminal=True)
        assert ("\x1b[2mvia loop" in text) == faint


def test_a_runner_up_says_what_would_have_happened() -> None:
    """The title alone does not tell whether it may be so."""
    verdict = hang_incident().verdict
    (other,) = verdict.alternatives
    said = "It may be that rank 3 had fewer iterations of `for batch in loader:`."
    changed = msgspec.structs.replace(verdict, alternatives=(msgspec.structs.replace(other, explanation=said),))
    text = " ".join(shown(msgspec.structs.replace(hang_incident(), verdict=changed), 120, verbose=True).split())
    assert f"{other.title} ({other.id}). {said}" in text


def test_a_cause_that_was_never_measured_is_shown_without_a_percentage() -> None:
    """No hang of the catalogue has it, so a number would be made up; in the document it stays a number."""
    verdict = hang_incident().verdict
    assert verdict.cause is not None
    unmeasured = msgspec.structs.replace(verdict.cause, confidence=0.5, measured=False)
    changed = msgspec.structs.replace(verdict, cause=unmeasured, alternatives=(unmeasured,))
    text = " ".join(shown(msgspec.structs.replace(hang_incident(), verdict=changed), 120, verbose=True).split())
    assert text.count("confidence not measured") == 1
    assert "50%" not in text


def test_a_cause_that_is_unknown_has_no_confidence() -> None:
    """How sure it is that nothing is known helps nobody."""
    verdict = hang_incident().verdict
    assert verdict.cause is not None
    unknown = msgspec.structs.replace(verdict.cause, id="unknown", confidence=0.13)
    changed = msgspec.structs.replace(verdict, cause=unknown, alternatives=())
    assert "confidence" not in shown(msgspec.structs.replace(hang_incident(), verdict=changed), 120, verbose=True)
