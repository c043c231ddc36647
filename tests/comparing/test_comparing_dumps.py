"""The dumps that PyTorch wrote: what hangwatch shows of them, and what the documentation says of the tools that read them."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

from corpus.catalogue import HERE, load_catalogue
from corpus.dumps import PREFIX, load_kept, unpack_dumps
from corpus.entries import Entry
from hangwatch.postmortem.artifacts import read_artifacts
from hangwatch.postmortem.verdict import diagnose_artifacts

ROOT = HERE.parent
#: Of these the operation in which one side waits was called by a backward pass: its recorded frames have no line of the program.
WITHOUT_LINE = {"nccl-plate-left-out"}


def test_diagnose_shows_both_call_sites_wherever_the_dumps_have_them(tmp_path: Path) -> None:
    """Of every kept hang whose culprits are found, where torch recorded a line of the program on both sides."""
    checked, kept = 0, load_kept()
    for entry in load_catalogue(["nccl/*"]):
        if entry.name not in kept or not kept[entry.name].dumps:
            continue
        folder = tmp_path / entry.scenario.name
        folder.mkdir()
        unpack_dumps(entry.name, folder)
        if _call_sites(entry, folder) is None:
            continue
        verdict = diagnose_artifacts(read_artifacts(folder, lambda _done, _total: None)).verdict
        truth = entry.scenario.truth
        assert truth is not None
        if set(verdict.culprit_ranks) != set(truth.culprits):
            continue
        divergence = verdict.divergence
        assert divergence is not None, entry.scenario.name
        for side in (divergence.culprit, divergence.others):
            if side is None and entry.scenario.name in WITHOUT_LINE:
                continue
            assert side is not None, entry.scenario.name
            assert side.file.endswith(f"/{entry.program}"), entry.scenario.name
        checked += 1
    assert checked > 10


def _call_sites(entry: Entry, folder: Path) -> tuple[set[tuple[str, int]], ...] | None:
    """The lines of both sides by the dumps: where each called its oldest operation that has not completed.

    What was launched as one (batched sends) is never recorded as completed, so only what comes after the last operation
    of its group that is counts. The first side is that of the culprits, the second that of the others; where all ranks are
    culprits, each is a side. None where a side has no line: it is in no operation, or called it from a thread without
    Python frames. A line is (file name, number).
    """
    truth = entry.scenario.truth
    assert truth is not None
    ranks = range(entry.scenario.ranks)
    culprits = {rank for rank in ranks if rank in truth.culprits}
    sides = [culprits, set(ranks) - culprits] if len(culprits) < len(ranks) else [{rank} for rank in ranks]
    lines = tuple({line for rank in side if (line := _pending(entry, folder, rank)) is not None} for side in sides)
    return lines if all(lines) else None


def _pending(entry: Entry, folder: Path, rank: int) -> tuple[str, int] | None:
    file = folder / f"{PREFIX}{rank}"
    if not file.exists():
        return None
    dump: dict[str, Any] = pickle.loads(file.read_bytes())  # noqa: S301  # one of ours
    pending: dict[str, dict[str, Any]] = {}
    for operation in dump["entries"]:
        name = operation["process_group"][0]
        if operation["state"] == "completed":
            pending.pop(name, None)
        else:
            pending.setdefault(name, operation)
    oldest = min(pending.values(), key=lambda one: one["record_id"], default={"frames": ()})
    lines = [frame["line"] for frame in oldest["frames"] if frame["filename"].endswith(f"/{entry.program}")]
    return (entry.program, lines[0]) if lines else None


def test_the_comparison_has_the_figures_of_the_corpus() -> None:
    """Both pages say the same of each tool, and each tool of the comparison's first table has a source."""
    page = (ROOT / "docs" / "comparison.md").read_text()
    whats = ("exactly the culprits", "one of them", "only other ranks", "nobody", "cause named")
    rows = [re.findall(rf"^\| {what}.*?\| (\d+) \| (\d+) \| (\d+) \|$", page, re.MULTILINE)[0] for what in whats]
    for place, tool in enumerate(("torchfrtrace", "nvrx", "dumps")):
        (scored,) = re.findall(rf"^\| `{tool}`.*", (HERE / "README.md").read_text(), re.MULTILINE)
        figures = re.findall(r"\| (\d+)", scored)
        assert [row[place] for row in rows] == figures[:5], tool
    others = page[page.index("|---|---|---|---|") : page.index("| **hangwatch**")].splitlines()[1:]
    assert len(others) > 10
    for line in others:
        (source,) = re.findall(r"^\| (?:.*?\[[^\]]+\]\[([a-z-]+)\])", line) or [""]
        assert f"\n[{source}]: https://" in page, line
