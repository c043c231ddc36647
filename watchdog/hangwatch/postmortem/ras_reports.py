"""What NCCL's RAS has said and somebody has kept: ``ncclras -v -f json > ras.json``. Reads files; runs and asks nothing.

Format: see ``hardware/sources/ras/ras_json``. A dump shows what a rank has called; the report shows which ranks of a
communicator NCCL itself misses, so it tells a rank without a dump that is gone from one that is alive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from hangwatch.hardware.sources.ras.ras_json import RasFormatError, parse_status_json
from hangwatch.model.capture import Capture, Gap
from hangwatch.model.devices import NodeFacts, RasReport
from hangwatch.sources.dumps.contents import Aside, Content, open_regular, read_content

_NAME = "nccl ras"
#: The first key of a report (``jsonWriteHeader``).
_BEGINS = b'{"nccl_version":'


def take_reports(contents: Iterable[Content | Aside], reports: list[RasReport]) -> Iterator[Content | Aside]:
    """Yield what is no report. Put the reports into ``reports``, with the file as their address."""
    for content in contents:
        if isinstance(content, Aside) or not _is_report(content):
            yield content
            continue
        try:
            reports.append(parse_status_json(read_content(content), content.name))
        except RasFormatError as error:
            yield Aside(content.name, str(error))


def _is_report(content: Content) -> bool:
    """True for a report by its beginning. Raises OSError."""
    if content.data is not None:
        head = content.data[:64]
    else:
        with open_regular(Path(content.file or "")) as stream:
            head = stream.read(64)
    return b"".join(head.split()).startswith(_BEGINS)


def join_reports(capture: Capture, reports: Iterable[RasReport]) -> Capture:
    """Return the capture with what the reports say.

    A report knows places in a communicator. In a communicator of the job's size the place is the rank.
    """
    if not capture.ranks:
        alone = tuple(
            Gap("file", f"{report.address}: a report of RAS says nothing without dumps") for report in reports
        )
        return msgspec.structs.replace(capture, gaps=capture.gaps + alone)
    facts = []
    for report in reports:
        ranks = _ranks_of(report, capture.job.world_size)
        problems = (
            msgspec.structs.replace(problem, ranks=tuple(sorted({ranks[p] for p in problem.processes if p in ranks})))
            for problem in report.problems
        )
        mapped = msgspec.structs.replace(report, problems=tuple(problems))
        facts.append(NodeFacts(report.address, capture.at_ns, ras=(mapped,), looked=(_NAME,)))
    return msgspec.structs.replace(capture, nodes=(*capture.nodes, *facts))


def _ranks_of(report: RasReport, size: int | None) -> dict[tuple[str, int], int]:
    """Return the ranks by host and pid; without those of which two such communicators differ."""
    places: dict[tuple[str, int], set[int]] = {}
    for communicator in report.communicators:
        for rank in communicator.ranks if communicator.size == size else ():
            places.setdefault((rank.host, rank.pid), set()).add(rank.place)
    return {process: min(found) for process, found in places.items() if len(found) == 1}
