"""The list of incidents that the page shows."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from examples import hang_capture, hang_incident

from hangwatch.outputs import archive
from hangwatch.outputs.archive import Archive
from hangwatch.outputs.bundle.bundle import write_bundle


def test_incidents_are_listed_the_newest_first_and_followed(tmp_path: Path) -> None:
    """A new one appears, an ended one says so, a removed one is gone, and what cannot be read is left out."""
    found = Archive(tmp_path)
    assert found.list() == ()
    write_bundle(tmp_path, hang_incident(), hang_capture())
    later = msgspec.structs.replace(hang_incident(), id="later", onset_at="2026-06-01T00:00:00Z")
    write_bundle(tmp_path, later, None)
    for name, content in (("broken", "{"), ("moved", (tmp_path / "incidents/later/incident.json").read_text())):
        (tmp_path / "incidents" / name).mkdir()
        (tmp_path / "incidents" / name / "incident.json").write_text(content)
    (tmp_path / "incidents" / "file").write_text("")
    assert [(one.id, one.ended_at) for one in found.list()] == [("later", None), (hang_incident().id, None)]
    write_bundle(tmp_path, hang_incident(ended_at="2026-05-28T20:30:00Z"), None)
    assert [one.ended_at for one in found.list()] == [None, "2026-05-28T20:30:00Z"]
    for file in (tmp_path / "incidents" / "later").iterdir():
        file.unlink()
    assert [one.id for one in found.list()] == [hang_incident().id]


def test_a_document_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unchanged document, which may have megabytes, is not decoded again."""
    write_bundle(tmp_path, hang_incident(), None)
    found = Archive(tmp_path)
    first = found.list()
    monkeypatch.setattr(archive.msgspec.json, "decode", lambda *_, **__: pytest.fail("read again"))
    assert found.list() == first
