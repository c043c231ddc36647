"""Recorded controls: replayed with the agent's own suspicion, patience and verdicts, none is called a hang."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from corpus import controls
from corpus.catalogue import load_catalogue
from corpus.controls import Recording, Tick, keep_recording, kept_controls, load_recording
from hangwatch.demos import find_scenario
from scenarios.__main__ import load_results
from scenarios.controls import controls_of, count_hangs, replay_all
from scenarios.replaying import DEFAULT, PATIENCES, replay
from scenarios.running import watching
from support import JobRunner, wait_for

KEPT = frozenset(kept_controls())
CONTROLS = controls_of(load_catalogue())
#: One of each family is replayed after each change, all others in the tier ``long``, with other patiences in ``soak``.
FIRST = {entry.family: entry for entry in reversed(CONTROLS) if entry.name in KEPT}


@pytest.mark.parametrize("family", sorted(FIRST))
def test_a_healthy_job_is_not_called_a_hang(family: str) -> None:
    """At the default patience. ``make scenarios OPTIONS=--replay-controls`` says what was reported."""
    assert replay(load_recording(family, FIRST[family].name), PATIENCES[DEFAULT]) is None


def test_a_recording_is_read_as_it_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every operation where it was, though each is kept once."""
    entry = FIRST["air_fields"]
    recording = load_recording(entry.family, entry.name)
    monkeypatch.setattr(controls, "CONTROLS", tmp_path)
    keep_recording(entry.family, entry.name, recording)
    assert load_recording(entry.family, entry.name) == recording
    assert any(rank.flight.operations for t in recording.ticks if t.capture for rank in t.capture.ranks if rank.flight)


def test_all_controls_are_recorded_and_on_the_page() -> None:
    """``make scenarios OPTIONS=--record-controls``, then ``OPTIONS="--replay-controls --write"``. None hangs at the default."""
    assert {entry.name for entry in CONTROLS} == KEPT
    results = load_results()
    assert results is not None
    assert results.replayed is not None
    assert results.replayed.controls == len(CONTROLS)
    assert results.replayed.called_hangs[DEFAULT] == 0


@pytest.mark.usefixtures("long")
@pytest.mark.parametrize("family", sorted(FIRST))
def test_no_job_of_a_family_is_called_a_hang(family: str) -> None:
    """At the default patience, all others of the family."""
    others = (one for one in CONTROLS if one.family == family and one != FIRST[family])
    assert [e.name for e in others if replay(load_recording(family, e.name), PATIENCES[DEFAULT]) is not None] == []


@pytest.mark.soak
def test_the_page_has_what_the_recordings_say() -> None:
    """Of all of them, with each patience."""
    results = load_results()
    assert results is not None
    assert results.replayed == count_hangs(list(replay_all(CONTROLS)))


def test_a_hang_is_found_in_its_recording(jobs: JobRunner, tmp_path: Path) -> None:
    """When the patience of the replay is over, and not before: or that no control is called a hang would say nothing."""
    demo, seen = find_scenario("blocked-io"), tmp_path / "ticks.jsonl"
    arguments = ("--stall-after", "2", "--state-dir", tmp_path / "state", "--", *demo.command())
    job = jobs.hangwatch("run", *arguments, env=demo.full_environment(), entry=watching(seen))

    def recorded() -> Recording:
        assert job.process.poll() is None, job.stderr()
        lines = seen.read_bytes().splitlines(keepends=True) if seen.exists() else []
        return Recording(0.0, tuple(msgspec.json.decode(line, type=Tick) for line in lines if line.endswith(b"\n")))

    recording = wait_for(
        lambda: r if (r := recorded()).ticks and replay(r, 8.0) is not None else None, 60.0, poll_s=1.0
    )
    hang = replay(recording, 8.0)
    assert hang is not None
    assert (hang.kind, hang.culprit_ranks) == (demo.kind, demo.culprits)
    assert replay(recording, 1000.0) is None
