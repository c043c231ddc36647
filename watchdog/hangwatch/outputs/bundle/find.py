"""Which incident is meant: by its id, by the path of its bundle, or the latest. May import the model and the archive."""

from __future__ import annotations

from pathlib import Path

from hangwatch.outputs.archive import Archive
from hangwatch.outputs.bundle.bundle import BundleError, is_incident_id

LATEST = "latest"
_SHOWN = 3


def find_incident(state_dir: Path, wanted: str) -> Path:
    """Return the folder of the incident with this id in ``state_dir``; for ``latest``, of the hang that began last.

    Raises:
        BundleError: there is none; the message is one line and names the last ones.
    """
    folder = state_dir / "incidents" / wanted
    if wanted != LATEST and is_incident_id(wanted) and (folder / "incident.json").is_file():
        return folder
    listed = Archive(state_dir).list()
    if not listed:
        raise BundleError(f"no incidents in {state_dir}; name another state directory with --state-dir DIR")
    if wanted == LATEST:
        return state_dir / "incidents" / listed[0].id
    last = ", ".join(one.id for one in listed[:_SHOWN])
    raise BundleError(f"no incident {wanted!r} in {state_dir}; the last are {last}")
