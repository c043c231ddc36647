"""The life of an incident: what is on disk when somebody is notified, what is added later, and how it ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from bundles_on_disk import recorded_capture

from hangwatch.agent.incidents import lifecycle
from hangwatch.agent.incidents.lifecycle import IncidentLifecycle
from hangwatch.agent.incidents.record import IncidentRecord
from hangwatch.diagnosis.document import rfc3339
from hangwatch.diagnosis.verdict import Diagnosis, diagnose
from hangwatch.model.capture import Capture, RankCapture
from hangwatch.model.devices import NodeFacts
from hangwatch.model.incident import Incident, SecondLook
from hangwatch.outputs.bundle.bundle import read_bundle, write_bundle

pytestmark = pytest.mark.asyncio
FACTS = NodeFacts("node-0", 1, looked=("kernel log",))


@dataclass
class Scope:
    """A node whose hardware answers. ``late``: its call sites come once this is so, or half a second has passed.

    ``moved``: its ranks' operations have ended by then.
    """

    late: Callable[[], bool] = lambda: True
    moved: bool = False

    async def capture(self) -> Capture:
        """The recorded hang."""
        return recorded_capture()

    async def call_sites(self, capture: Capture, ranks: Collection[int] | None) -> Capture:
        """None are added, but the records are newer."""
        del ranks
        end_s = time.monotonic() + 0.5
        while not self.late() and time.monotonic() < end_s:
            await asyncio.sleep(0.01)
        return _with_ended_operations(capture) if self.moved else capture

    async def hardware(self, capture: Capture, only: Collection[str] | None) -> Capture:
        """The capture with the node's facts."""
        del only
        return msgspec.structs.replace(capture, nodes=(FACTS,))


def _with_ended_operations(capture: Capture) -> Capture:
    def moved(rank: RankCapture) -> RankCapture:
        assert rank.flight is not None
        ended = tuple(msgspec.structs.replace(o, completed=True) for o in rank.flight.operations)
        return msgspec.structs.replace(rank, flight=msgspec.structs.replace(rank.flight, operations=ended))

    return msgspec.structs.replace(capture, ranks=tuple(map(moved, capture.ranks)))


@dataclass
class Witness:
    """Notes in order what became known: to the other nodes, to the receivers, and what was on disk by then."""

    state_dir: Path
    seen: list[tuple[str, str, bool]] = field(default_factory=list)

    async def announce(self, incident: Incident, path: Path | None) -> None:
        """The receivers are notified."""
        assert path is not None
        document, _ = read_bundle(path)
        assert document is not None
        assert document.id == incident.id
        self.seen.append(("announced", document.verdict.kind, document.ended_at is not None))

    async def share(self, record: IncidentRecord, *, announced: bool, complete: bool = False) -> None:
        """The other nodes are."""
        what = "complete" if complete else "known" if announced else "begun"
        self.seen.append((what, record.incident.verdict.kind, record.incident.ended_at is not None))

    async def await_completion(self, record: IncidentRecord) -> None:
        """Nobody else owns it."""


def _lifecycle(witness: Witness) -> IncidentLifecycle:
    return IncidentLifecycle(witness.state_dir, witness.announce, scope=Scope(), sharing=witness)


def _as_stall(diagnosis: Diagnosis) -> Diagnosis:
    verdict = msgspec.structs.replace(diagnosis.verdict, kind="stall", proven=False)
    return Diagnosis(verdict, diagnosis.case, diagnosis.waited_s, diagnosis.onset_ns)


async def test_the_bundle_is_there_before_anybody_knows_and_completed_after(tmp_path: Path) -> None:
    """First the other nodes, so that one of them can go on, then the receivers, then what takes long to find out."""
    witness = Witness(tmp_path)
    incidents = _lifecycle(witness)
    await incidents.report(diagnose(recorded_capture()), detected_ns=recorded_capture().at_ns)
    await incidents.completed()
    assert [what for what, _, _ in witness.seen[:2]] == ["begun", "announced"]
    assert sorted(what for what, _, _ in witness.seen[2:]) == ["complete", "known"]
    record = incidents.open_record
    assert record is not None
    assert record.path is not None
    document, capture = read_bundle(record.path)
    assert document == record.incident
    assert capture.nodes == (FACTS,)
    assert record.incident.captured["kernel_log"]
    assert rfc3339(record.onset_ns) == record.incident.onset_at


async def test_what_is_added_is_of_the_hang_that_was_judged(tmp_path: Path) -> None:
    """Ranks that have moved before their call sites were read keep the record that the verdict rests on."""
    judged, witness = diagnose(recorded_capture()), Witness(tmp_path)
    assert not diagnose(_with_ended_operations(recorded_capture())).verdict.proven
    incidents = IncidentLifecycle(tmp_path, witness.announce, scope=Scope(moved=True), sharing=witness)
    await incidents.report(judged, detected_ns=recorded_capture().at_ns)
    await incidents.completed()
    assert incidents.record is not None
    assert incidents.record.path is not None
    _, capture = read_bundle(incidents.record.path)
    assert capture.nodes == (FACTS,)
    again = diagnose(capture).verdict
    assert (again.kind, again.proven, again.culprit_ranks) == ("deadlock", True, judged.verdict.culprit_ranks)


async def test_a_change_is_not_undone_by_what_was_still_to_be_added(tmp_path: Path) -> None:
    """The bundle of the verdict before is completed first: the document that stays is the newer one, under the same id."""
    witness = Witness(tmp_path)
    proven = diagnose(recorded_capture())

    def is_newer() -> bool:
        return any(b'"deadlock"' in path.read_bytes() for path in tmp_path.glob("incidents/*/incident.json"))

    incidents = IncidentLifecycle(tmp_path, witness.announce, scope=Scope(is_newer), sharing=witness)
    await incidents.report(_as_stall(proven), detected_ns=recorded_capture().at_ns)
    before = incidents.record
    await incidents.report(proven, detected_ns=recorded_capture().at_ns)
    await incidents.completed()
    assert [kind for what, kind, _ in witness.seen if what == "announced"] == ["stall", "deadlock"]
    assert before is not None
    assert incidents.record is not None
    assert incidents.record.id == before.id


@pytest.mark.parametrize("owned", [True, False])
async def test_how_the_second_look_stands_is_no_news_for_the_receivers(tmp_path: Path, owned: bool) -> None:
    """It is on disk before those who act are told, and the other nodes know."""
    witness, told = Witness(tmp_path), []

    async def tell_stand(incident: Incident, path: Path | None, owned: bool) -> None:
        assert path is not None
        assert read_bundle(path)[0] == incident
        told.append((incident.second_look, owned))

    incidents = IncidentLifecycle(tmp_path, witness.announce, tell_stand=tell_stand, scope=Scope(), sharing=witness)
    look = SecondLook("2026-05-28T21:01:30.000Z", "a rank moves", passed=True)
    await incidents.report(diagnose(recorded_capture()), detected_ns=recorded_capture().at_ns)
    if not owned:
        incidents.give_up()
    await incidents.look_again(look)
    assert told == [(look, owned)]
    assert [what for what, _, _ in witness.seen].count("announced") == 1
    assert witness.seen[-1][0] == "known"


async def test_a_hang_may_be_acted_on_once_its_bundle_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who stops the job because a liveness probe failed reads in the bundle why."""
    incidents = _lifecycle(Witness(tmp_path))
    await incidents.report(
        diagnose(recorded_capture()),
        detected_ns=recorded_capture().at_ns,
        second_look=SecondLook("2026-05-28T21:01:30.000Z", "a rank moves"),
    )
    meanwhile: list[bool] = []

    def write(folder: Path, incident: Incident, capture: Capture | None) -> Path:
        assert incidents.record is not None
        meanwhile.append(incidents.record.stands)
        return write_bundle(folder, incident, capture)

    await incidents.completed()
    monkeypatch.setattr(lifecycle, "write_bundle", write)
    await incidents.look_again(SecondLook("2026-05-28T21:01:30.000Z", "a rank moves", passed=True))
    assert incidents.record is not None
    assert (meanwhile, incidents.record.stands) == ([False], True)


async def test_the_end_is_on_disk_before_it_is_announced_and_is_announced_once(tmp_path: Path) -> None:
    """Whoever owns the incident is the one to announce its end; a second end changes nothing."""
    witness = Witness(tmp_path)
    incidents = _lifecycle(witness)
    await incidents.report(diagnose(recorded_capture()), detected_ns=recorded_capture().at_ns)
    await incidents.close(recorded_capture().at_ns)
    await incidents.close(recorded_capture().at_ns)
    assert [(what, over) for what, _, over in witness.seen if over] == [("announced", True), ("known", True)]
    assert incidents.open_record is None


async def test_the_end_of_what_a_peer_owns_is_no_news_for_the_receivers(tmp_path: Path) -> None:
    """It is noted in the bundle here, and the other node announces it."""
    witness = Witness(tmp_path)
    incidents = _lifecycle(witness)
    await incidents.report(diagnose(recorded_capture()), detected_ns=recorded_capture().at_ns)
    incidents.give_up()
    await incidents.close(recorded_capture().at_ns)
    assert [what for what, _, over in witness.seen if over] == ["known"]
    assert incidents.record is not None
    assert incidents.record.path is not None
    document, _ = read_bundle(incidents.record.path)
    assert document is not None
    assert document.ended_at is not None


async def test_an_incident_without_a_bundle_is_announced_all_the_same(tmp_path: Path) -> None:
    """Where the disk refuses it, the incident says so."""
    announced: list[tuple[Incident, Path | None]] = []

    async def announce(incident: Incident, path: Path | None) -> None:
        announced.append((incident, path))

    (tmp_path / "incidents").write_text("no folder")
    incidents = IncidentLifecycle(tmp_path, announce)
    await incidents.report(diagnose(recorded_capture()), detected_ns=recorded_capture().at_ns)
    ((incident, path),) = announced
    assert path is None
    assert any(line.startswith("bundle: ") for line in incident.missing)
