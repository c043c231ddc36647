"""What somebody has after a crash, as a capture: an incident's bundle, or dumps and stacks of any origin. Only reads."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from hangwatch.config.errors import UserError
from hangwatch.model.capture import Capture, Gap
from hangwatch.model.incident import Incident
from hangwatch.outputs.bundle.bundle import read_bundle
from hangwatch.postmortem.training import read_training
from hangwatch.sources.dumps.contents import Aside, Content, count_files, find_contents, read_content
from hangwatch.sources.dumps.gathering import Progress, gather

#: Where the files hold the time at which they were written, an operation younger than this was no wait yet: a step may take
#: two seconds.
MIN_WAIT_S = 2.5
#: The files of a bundle that are read again, below its folder.
_BUNDLE_FILE = re.compile(r"(?P<root>(?:.*/)?)(?P<name>(?:incident|capture)\.json|(?:ranks|stacks)\.jsonl)")
_HEADS = frozenset({"incident.json", "capture.json"})
_REASONS = 3

_Bundles = dict[str, dict[str, Content]]


class Artifacts(msgspec.Struct, frozen=True):
    """A capture to be diagnosed, with the document that the agent wrote of it, if it did.

    ``min_wait_s``: operations that were younger than this at the capture's time are no waits.
    """

    capture: Capture
    before: Incident | None = None
    min_wait_s: float = 0.0


def read_artifacts(path: Path, progress: Progress) -> Artifacts:
    """All that ``path`` holds. Raises ``UserError`` where there is nothing to diagnose, ``BundleError`` for a broken bundle."""
    if any((path / name).exists() for name in _HEADS):
        before, capture = read_bundle(path)
        return Artifacts(capture, before)
    bundles: _Bundles = {}
    try:
        total = count_files(path)
        contents = _take_bundles(find_contents(path), bundles)
        gathered = gather(contents, job=_job_name(path), total=total, progress=progress)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    bundles = {root: files for root, files in bundles.items() if _HEADS & files.keys()}
    capture = gathered.capture
    if not capture.ranks:
        if not bundles and (training := read_training(path, _job_name(path), progress)) is not None:
            return Artifacts(training)
        return _read_found_bundle(path, bundles, capture.gaps)
    if gathered.disagreeing:
        raise UserError(
            f"the dumps in {path} are of different moments, between which the job went on, so they cannot be compared; take "
            "them of all ranks at once, while it hangs"
        )
    if _says_nothing(capture):
        raise UserError(
            f"the dumps in {path} hold no operation of any rank: a first collective that never completes is recorded by none, as "
            "NCCL connects all ranks before; give py-spy's stacks beside them (py-spy dump --pid PID), taken while it hangs"
        )
    beside = tuple(Gap("file", f"{root or '.'}: an incident's bundle beside dumps; give it alone") for root in bundles)
    capture = msgspec.structs.replace(capture, gaps=capture.gaps + beside)
    return Artifacts(capture, None, MIN_WAIT_S if gathered.timed else 0.0)


def _says_nothing(capture: Capture) -> bool:
    """Whether there are records alone, and none has an operation."""
    return all(not rank.stacks and rank.flight is not None and rank.flight.blank for rank in capture.ranks)


def _take_bundles(contents: Iterable[Content | Aside], bundles: _Bundles) -> Iterator[Content | Aside]:
    """What is no part of a bundle; parts are put into ``bundles`` by the bundle's folder and their place in it."""
    for content in contents:
        part = _BUNDLE_FILE.fullmatch(content.name)
        if part is None or isinstance(content, Aside):
            yield content
        else:
            bundles.setdefault(part["root"], {})[part["name"]] = content


def _read_found_bundle(path: Path, bundles: Mapping[str, Mapping[str, Content]], gaps: Iterable[Gap]) -> Artifacts:
    """The one bundle that lies further down, or in an archive."""
    if len(bundles) > 1:
        shown = ", ".join(sorted(root.rstrip("/") for root in bundles)[-_REASONS:])
        raise UserError(f"{path} holds {len(bundles)} incidents; give one of them, the last are {shown}")
    for files in bundles.values():
        with tempfile.TemporaryDirectory(prefix="hangwatch-") as folder:
            for name, content in files.items():
                place = Path(folder, name)  # one of a few fixed names, whatever the archive calls it
                place.write_bytes(read_content(content))
            before, capture = read_bundle(Path(folder))
        return Artifacts(capture, before)
    reasons = [gap.reason for gap in gaps]
    why = f" ({'; '.join(reasons[:_REASONS])})" if reasons else ""
    raise UserError(
        f"{path} holds nothing to diagnose{why}; give an incident's folder, flight-recorder dumps, "
        "py-spy's stacks or training logs"
    )


def _job_name(path: Path) -> str:
    return path.resolve().name.split(".")[0] or "dumps"
