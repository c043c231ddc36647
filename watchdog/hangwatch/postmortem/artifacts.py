"""Makes a capture of what somebody has after a crash: an incident's bundle, or dumps and stacks of any origin. Only reads."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from hangwatch.analysis.patience import STEP_S
from hangwatch.model.capture import Capture, Gap
from hangwatch.model.devices import RasReport
from hangwatch.model.errors import UserError
from hangwatch.model.incident import Incident
from hangwatch.outputs.bundle.bundle import read_bundle
from hangwatch.postmortem.ras_reports import join_reports, take_reports
from hangwatch.sources.dumps.contents import Aside, Content, count_files, find_contents, read_content
from hangwatch.sources.dumps.failure_log import parse_failure_log
from hangwatch.sources.dumps.gathering import Progress, gather
from hangwatch.training.postmortem import read_training
from hangwatch.training.sources.training_files import read_last_lines


def read_failure(path: Path, job: str, progress: Progress) -> Capture | None:
    """Return the capture of a job whose ranks lost each other; None if no output in ``path`` tells of that.

    Raises OSError if ``path`` itself cannot be read.
    """
    lines = list(read_last_lines(path))
    progress(1, 1)
    return parse_failure_log((text for _, text in lines), job=job, at_ns=max((at for at, _ in lines), default=0))


#: The files of a bundle that are read again, below its folder.
_BUNDLE_FILE = re.compile(r"(?P<root>(?:.*/)?)(?P<name>(?:incident|capture)\.json|(?:ranks|stacks)\.jsonl)")
_HEADS = frozenset({"incident.json", "capture.json"})
_REASONS = 3

_Bundles = dict[str, dict[str, Content]]


class Artifacts(msgspec.Struct, frozen=True):
    """A capture to be diagnosed, with the agent's document if it wrote one.

    ``min_wait_s``: operations younger than this at the capture's time count as no waits; 0 if that time is not known.
    """

    capture: Capture
    before: Incident | None = None
    min_wait_s: float = 0.0


def read_artifacts(path: Path, progress: Progress) -> Artifacts:
    """Return all that ``path`` holds.

    Raises ``UserError`` if there is nothing to diagnose, ``BundleError`` for a broken bundle.
    """
    if any((path / name).exists() for name in _HEADS):
        before, capture = read_bundle(path)
        return Artifacts(capture, before)
    bundles: _Bundles = {}
    reports: list[RasReport] = []
    try:
        total = count_files(path)
        contents = take_reports(_take_bundles(find_contents(path), bundles), reports)
        gathered = gather(contents, job=_job_name(path), total=total, progress=progress)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    bundles = {root: files for root, files in bundles.items() if _HEADS & files.keys()}
    capture = join_reports(gathered.capture, reports)
    if not capture.ranks:
        for read in () if bundles else (read_failure, read_training):
            if (found := read(path, _job_name(path), progress)) is not None:
                return Artifacts(found)
        return _read_found_bundle(path, bundles, capture.gaps)
    if gathered.disagreeing:
        raise UserError(
            f"the dumps in {path} cannot be compared, because the job went on between them; take the "
            "dumps of all ranks at once, while the job hangs"
        )
    if _says_nothing(capture):
        raise UserError(
            f"the dumps in {path} contain no operation. NCCL records a first collective only after "
            "all ranks have connected; add py-spy's stacks (py-spy dump --pid PID), taken while the "
            "job hangs"
        )
    beside = tuple(
        Gap("file", f"{root or '.'}: an incident's bundle next to dumps; diagnose it separately") for root in bundles
    )
    capture = msgspec.structs.replace(capture, gaps=capture.gaps + beside)
    return Artifacts(capture, None, STEP_S if gathered.timed else 0.0)


def _says_nothing(capture: Capture) -> bool:
    """True if there are only records, and none has an operation."""
    return all(not rank.stacks and rank.flight is not None and rank.flight.blank for rank in capture.ranks)


def _take_bundles(contents: Iterable[Content | Aside], bundles: _Bundles) -> Iterator[Content | Aside]:
    """Yield what is not part of a bundle.

    Put the parts into ``bundles``, by the bundle's folder and their name in it.
    """
    for content in contents:
        part = _BUNDLE_FILE.fullmatch(content.name)
        if part is None or isinstance(content, Aside):
            yield content
        else:
            bundles.setdefault(part["root"], {})[part["name"]] = content


def _read_found_bundle(path: Path, bundles: Mapping[str, Mapping[str, Content]], gaps: Iterable[Gap]) -> Artifacts:
    """Return the only bundle, which lies further down or in an archive."""
    if len(bundles) > 1:
        shown = ", ".join(sorted(root.rstrip("/") for root in bundles)[-_REASONS:])
        raise UserError(f"{path} holds {len(bundles)} incidents; choose one, for example {shown}")
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
