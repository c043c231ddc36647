"""The life of an incident, and the one writer of its record: opened, changed, completed, adopted, closed.

The order is always the same: write the bundle, notify the receivers, and then add what takes long to find out. May import the
capturing room, the diagnosis and the bundle's writer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from hangwatch.agent.capturing.scope import CaptureScope
from hangwatch.agent.incidents.record import (
    Announce,
    IncidentRecord,
    Sharing,
    TellStand,
    announce_to_nobody,
    tell_nobody,
)
from hangwatch.agent.incidents.reopen import LeftOpen
from hangwatch.analysis.case import build_case
from hangwatch.diagnosis.document import captured, ended, make_incident, missing, of_this_node
from hangwatch.diagnosis.verdict import Diagnosis
from hangwatch.model.capture import Capture, RankCapture
from hangwatch.model.collectives import in_flight
from hangwatch.model.incident import Incident, SecondLook
from hangwatch.outputs.bundle.bundle import BundleError, write_bundle

log = logging.getLogger("hangwatch")


def _whole(capture: Capture) -> Capture:
    return capture


async def _as_it_is(incident: Incident) -> Incident:
    return incident


def _as_judged(judged: Capture, completed: Capture) -> Capture:
    """Return ``completed``, but with the flight records of ``judged`` for ranks that have moved since.

    The verdict rests on the old records. Once a rank has gone, those that waited for it get an error and move on.
    """
    before = {rank.rank: rank for rank in judged.ranks}

    def kept(after: RankCapture) -> RankCapture:
        old = before.get(after.rank)
        if old is None or old.flight is None or _awaited(old) == _awaited(after):
            return after
        return msgspec.structs.replace(after, flight=old.flight)

    return msgspec.structs.replace(completed, ranks=tuple(map(kept, completed.ranks)))


def _awaited(rank: RankCapture) -> set[tuple[str, bool, int]]:
    """Return the operations that a rank has in flight, according to its flight record."""
    return {(o.group.key, o.p2p, o.seq) for o in in_flight(rank.flight.operations if rank.flight else ())}


@dataclass
class IncidentLifecycle:
    """The incidents of one job, one after the other; ``record`` is the last one.

    ``announce`` is called for an incident once its bundle is on disk, and again when it changes or ends;
    ``on_peer_incident`` instead if another node owns the incident. ``tell_stand`` is called when the state of its
    second look changes. ``scope`` completes a bundle after the incident was announced; None if there is nothing to add.
    ``trim`` cuts a capture to what its bundle is to hold. ``note`` adds to an incident what is known of its job's
    earlier ones.
    """

    state_dir: Path
    announce: Announce
    on_peer_incident: Announce = announce_to_nobody
    tell_stand: TellStand = tell_nobody
    scope: CaptureScope | None = None
    trim: Callable[[Capture], Capture] = _whole
    note: Callable[[Incident], Awaitable[Incident]] = _as_it_is
    sharing: Sharing = field(default_factory=Sharing)
    record: IncidentRecord | None = None
    _completing: asyncio.Task[None] | None = None

    @property
    def open_record(self) -> IncidentRecord | None:
        """The incident that was reported and is not over; None if there is none."""
        return self.record if self.record is not None and self.record.active else None

    def resume(self, record: IncidentRecord) -> None:
        """Go on with an incident that an agent before this one has reported."""
        self.record = record

    async def report(
        self,
        diagnosis: Diagnosis,
        *,
        detected_ns: int,
        since_ns: int | None = None,
        second_look: SecondLook | None = None,
    ) -> None:
        """Report a new incident, or the open one again, of which more is known now.

        ``since_ns``: since when a hang is suspected; the onset if neither a recorder nor the samples tell it.
        """
        known_id = self.open_record.id if self.open_record is not None else None
        onset_ns = diagnosis.onset_ns or diagnosis.case.still_since_ns or since_ns or detected_ns
        incident = make_incident(
            diagnosis, detected_ns=detected_ns, confirmed_ns=time.time_ns(), onset_ns=onset_ns, id=known_id
        )
        incident = await self.note(msgspec.structs.replace(incident, second_look=second_look))
        await self.completed()  # or it would put the document before this one in its place
        record = self.record = await self._store(incident, diagnosis, onset_ns)
        # Before anybody is notified, so that whoever takes over goes on with this one.
        await self.sharing.share(record, announced=False)
        if self.scope is not None:
            self._completing = asyncio.create_task(self._complete(record, self.scope))  # begins when this was announced
        await self.announce(record.incident, record.path)
        await self.sharing.share(self.record or record, announced=True)  # by now it may be complete

    async def look_again(self, second_look: SecondLook) -> None:
        """Keep how the second look at the open incident stands: whether it may be acted on, and when."""
        await self.completed()
        if (record := self.open_record) is None:
            return
        incident = msgspec.structs.replace(record.incident, second_look=second_look)
        record = replace(record, incident=incident)
        await self._rewrite(record)
        self.record = record  # whoever stops the job on seeing it finds it in the bundle, too
        await self.sharing.share(record, announced=True)
        await self.tell_stand(record.incident, record.path, not record.owned_by_peer)

    async def adopt(self, incident: Incident, capture: Capture, node: str, onset_ns: int) -> None:
        """Keep an incident that another node, ``node``, has reported, with a bundle of this node's own ranks."""
        await self.completed()
        diagnosis = Diagnosis(incident.verdict, case := build_case(capture), None, None)
        known = self.record if self.record is not None and self.record.id == incident.id else None
        incident = await self.note(of_this_node(incident, case, node))
        # Nodes that share a home have the whole bundle there already.
        whole = known.path is None if known is not None else (self.state_dir / "incidents" / incident.id).exists()
        if whole:
            record = IncidentRecord(incident, diagnosis, None, onset_ns)
        else:
            record = await self._store(incident, diagnosis, onset_ns)
        self.record = record = replace(record, owned_by_peer=True, partial=True)
        if known is not None and known.incident.verdict == incident.verdict:
            await self.tell_stand(record.incident, record.path, False)
        else:
            await self.on_peer_incident(record.incident, record.path)

    async def complete_from_fleet(self, diagnosis: Diagnosis) -> None:
        """Write the whole bundle here: the node that reported the incident may be gone, and its bundle with it."""
        if (record := self.record) is None:
            return
        incident = record.incident
        entries = make_incident(diagnosis, detected_ns=diagnosis.case.capture.at_ns, confirmed_ns=None, id=incident.id)
        incident = msgspec.structs.replace(incident, job=entries.job, ranks=entries.ranks, missing=entries.missing)
        self.record = await self._store(incident, diagnosis, record.onset_ns)

    def give_up(self) -> None:
        """Leave the incident to the node that owns it from now on."""
        if self.record is not None:
            self.record = replace(self.record, owned_by_peer=True)

    def take_back(self) -> None:
        """Own the incident again: no other node is left to report its end."""
        if self.record is not None:
            self.record = replace(self.record, owned_by_peer=False)

    async def take_over(self, *, announced: bool) -> None:
        """Own an incident whose owner is gone. ``announced``: the receivers have been notified of it."""
        self.take_back()
        if (record := self.record) is None:
            return
        if not announced:
            await self.announce(record.incident, record.path)
        await self.sharing.share(record, announced=True)

    async def close(self, at_ns: int) -> None:
        """End the incident: write that into its bundle, and tell everybody who was told of it."""
        await self.completed()
        if (record := self.open_record) is None:
            return
        record = self.record = replace(record, active=False, incident=ended(record.incident, at_ns))
        await self._rewrite(record)
        announce = self.on_peer_incident if record.owned_by_peer else self.announce
        await announce(record.incident, record.path)
        await self.sharing.share(record, announced=True)

    async def _rewrite(self, record: IncidentRecord) -> None:
        """Replace the document in a bundle that is on disk."""
        if record.path is not None:
            try:
                await asyncio.to_thread(write_bundle, self.state_dir, record.incident, None)
            except BundleError as error:
                log.warning("%s", error)

    @property
    def completing(self) -> bool:
        """True while the bundle of the incident that was reported last is being completed."""
        return self._completing is not None and not self._completing.done()

    async def completed(self) -> None:
        """Wait until the bundle of the incident that was reported last is complete."""
        task = self._completing  # others may wait for it as well
        if task is not None:
            await asyncio.wait({task})
            if self._completing is task:
                self._completing = None
                if error := task.exception():
                    log.error("the bundle could not be completed", exc_info=error)

    async def completed_everywhere(self) -> None:
        """Wait until the node that owns the incident has all it needs of the ranks, before the job is ended here."""
        await self.completed()
        if self.record is not None and self.record.owned_by_peer:
            await self.sharing.await_completion(self.record)

    async def _store(self, incident: Incident, diagnosis: Diagnosis, onset_ns: int) -> IncidentRecord:
        """Write the bundle and return the incident's record. If the bundle cannot be written, the incident says so."""
        path: Path | None = None
        try:
            path = await asyncio.to_thread(write_bundle, self.state_dir, incident, self.trim(diagnosis.case.capture))
        except BundleError as error:
            log.warning("%s", error)
            incident = msgspec.structs.replace(incident, missing=(*incident.missing, f"bundle: {error}"))
        return IncidentRecord(incident, diagnosis, path, onset_ns)

    async def _complete(self, record: IncidentRecord, scope: CaptureScope) -> None:
        """Add every rank's call sites and the nodes' hardware to a bundle: they take long, so they come last."""
        if record.path is None:
            return
        judged = record.diagnosis.case.capture
        capture = _as_judged(judged, await scope.call_sites(judged, None))
        if not capture.nodes:
            capture = await scope.hardware(capture, None)
        incident = msgspec.structs.replace(
            record.incident,
            captured={**record.incident.captured, **captured(capture)},
            missing=tuple(dict.fromkeys((*record.incident.missing, *missing(capture)))),
        )
        try:
            await asyncio.to_thread(write_bundle, self.state_dir, incident, self.trim(capture))
        except BundleError as error:
            log.warning("%s", error)
            return
        if self.record is not None and self.record.id == record.id:
            self.record = replace(self.record, incident=incident)
        await self.sharing.share(replace(record, incident=incident), announced=True, complete=True)


async def close_left_open(left: LeftOpen, state_dir: Path, announce: Announce, at_ns: int) -> None:
    """End an incident that an agent before this one has left open, and whose job is gone."""
    await IncidentLifecycle(state_dir, announce, record=left.as_record()).close(at_ns)
