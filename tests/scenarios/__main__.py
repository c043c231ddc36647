"""``python -m scenarios [PATTERN ...]``: run the catalogue, or what of it matches, and say how it went."""

from __future__ import annotations

import argparse
import gzip
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from corpus.catalogue import HOLDOUT, captured, keep_captures, load_catalogue
from corpus.entries import Entry
from scenarios.baselines import Baseline, run_baselines
from scenarios.browsing import render_page
from scenarios.controls import controls_of, count_hangs, record_controls, replay_all
from scenarios.dumping import run_for_dumps
from scenarios.judging import Judgement, Run, find_hang, judge
from scenarios.launching import HERE
from scenarios.recording import judge_again, record
from scenarios.replaying import DEFAULT
from scenarios.running import missing_need, run_all
from scenarios.tables import Replayed, Results, meets_bar, render, summarize

#: The last result of every scenario; the summary (.md) and the page (.html) beside it are made from it.
RESULTS = HERE.parent.parent / "docs" / "scenarios.json"
#: Kept beside the catalogue: what other tools say of a hang changes with torch, not with us.
BASELINES = HERE / "baselines.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 if everything that ran met the bar, 1 if not, 2 if nothing could be run."""
    options = _parse(arguments)
    try:
        entries = load_catalogue(options.patterns)
    except ValueError as error:
        print(f"scenarios: {error}", file=sys.stderr)
        return 2
    if options.list:
        for entry in entries:
            print(f"{entry.family + '/' + entry.scenario.name:44} {entry.scenario.describes}")
        return 0
    if options.replay_controls:
        return _replay_controls(load_catalogue() if options.write else entries, options.write)
    skipped = {e.scenario.name: reason for e in entries if (reason := missing_need(e)) is not None}
    wanted = [entry for entry in entries if entry.scenario.name not in skipped]
    if not wanted:
        reasons = "; ".join(f"{name} {reason}" for name, reason in skipped.items())
        print(f"scenarios: nothing to run: {reasons or 'no name matches (--list names all)'}", file=sys.stderr)
        return 2
    return _work_on(wanted, skipped, options)


def _work_on(wanted: Sequence[Entry], skipped: Mapping[str, str], options: argparse.Namespace) -> int:
    folder = Path(options.keep or tempfile.mkdtemp(prefix="hangwatch-scenarios-"))
    if options.baselines:
        _measure_baselines(wanted, folder / "baselines", options.jobs)
        return 0
    if options.dumps:
        _keep_dumps(wanted, folder / "dumps")
        return 0
    if options.record_controls:
        for line in record_controls(controls_of(wanted), folder, options.jobs):
            print(line, flush=True)
        return 0
    if options.recorded:
        _judge_recorded(captured(wanted), options.write)
        return 0
    kept = folder / "captures" if options.record else None
    rows = list(run_and_judge(wanted, folder, at_once=options.jobs, kept=kept, verbose=options.verbose))
    if kept is not None and kept.exists():
        keep_captures({p.name.removesuffix(".json.gz"): gzip.decompress(p.read_bytes()) for p in kept.iterdir()})
    results = summarize(wanted, rows, [], skipped)
    if options.write:
        _write(rows)
    _print_figures(results, folder)
    return 0 if meets_bar(results.figures) else 1


def _keep_dumps(wanted: Sequence[Entry], folder: Path) -> None:
    hangs = [entry for entry in wanted if entry.scenario.truth is not None and entry.scenario.simulated]
    for number, kept in enumerate(run_for_dumps(hangs, folder), 1):
        how = "asked for" if kept.asked else "written when the time limit was reached"
        print(f"[{number}/{len(hangs)}] {kept.name}: {kept.dumps} dumps, {how}", flush=True)


def _judge_recorded(hangs: Sequence[Entry], write: bool) -> None:
    rows = [judge_again(entry) for entry in hangs]
    print("\n".join(line_of(row, None) for row in rows))
    if write:
        _write(_timed(rows))
    _print_figures(summarize(hangs, rows, [], {}), None)


def run_and_judge(
    entries: Sequence[Entry], folder: Path, *, at_once: int, kept: Path | None, verbose: bool
) -> Iterator[Judgement]:
    """Run scenarios in ``folder`` and print how each went, ``verbose``: with what one printed that went wrong.

    ``kept``: the folder for the captures of hangs that were found.
    """
    for number, (entry, run) in enumerate(run_all(entries, folder, at_once), 1):
        row = judge(entry, run)
        truth = entry.scenario.truth
        if kept is not None and truth is not None and (reported := find_hang(run.incidents, truth)) is not None:
            record(entry, reported, folder, kept)
        print(f"[{number}/{len(entries)}] {line_of(row, run)}", flush=True)
        if verbose and not row.good:
            print(f"--- {row.name}\n{run.output[-6000:]}\n---", flush=True)
        yield row


def line_of(row: Judgement, run: Run | None) -> str:
    """A judgement for people: a line, and one for each difference from the truth."""
    mark = "ok " if row.good else "BAD"
    confirmed = f", confirmed after {row.confirmed_s:.1f} s" if row.confirmed_s is not None else ""
    took = f" ({run.took_s:.0f} s in all)" if run is not None else ""
    reported = f"{row.kind}{' proven' if row.proven else ''}, {row.said}{confirmed}{took}"
    return f"{mark} {row.name}: {reported}" + "".join(f"\n      {difference}" for difference in row.wrong)


def _load_baselines() -> list[Baseline]:
    return msgspec.json.decode(BASELINES.read_bytes(), type=list[Baseline]) if BASELINES.exists() else []


def _measure_baselines(wanted: Sequence[Entry], folder: Path, at_once: int) -> None:
    found = {baseline.name: baseline for baseline in _load_baselines()}
    # Those of the simulated device run in an environment without what the measurement needs.
    hangs = [entry for entry in wanted if entry.scenario.truth is not None and not entry.scenario.simulated]
    for number, (entry, baseline) in enumerate(run_baselines(hangs, folder, at_once), 1):
        if baseline is None:
            print(
                f"[{number}/{len(hangs)}] {entry.scenario.name}: did not get as far as its hang; run it again",
                flush=True,
            )
            continue
        found[baseline.name] = baseline
        print(f"[{number}/{len(hangs)}] {baseline.name}: {baseline.timeout_says}; {baseline.analyzer_says}", flush=True)
        ordered = [found[name] for name in sorted(found)]
        BASELINES.write_bytes(msgspec.json.format(msgspec.json.encode(ordered), indent=1) + b"\n")


def _replay_controls(entries: Sequence[Entry], write: bool) -> int:
    """Say which recorded controls are called a hang, but of those that are held out; returns 0 for none at the default."""
    replays = list(replay_all(entries))
    for entry, patience, hang in ((one.entry, *found) for one in replays for found in one.hangs.items()):
        if hang is not None and entry.family not in HOLDOUT:
            print(f"BAD {entry.name}, stall timeout {patience}: {hang.kind}: {hang.summary}")
    replayed = count_hangs(replays)
    print(
        f"{replayed.controls} of {len(controls_of(entries))} controls are recorded; called a hang: {replayed.called_hangs}"
    )
    if write:
        _write((), replayed)
    return int(replayed.called_hangs[DEFAULT] > 0)


def load_results() -> Results | None:
    """What ``docs/scenarios.json`` holds; None where it is not there."""
    return msgspec.json.decode(RESULTS.read_bytes(), type=Results) if RESULTS.exists() else None


def _load_rows() -> dict[str, Judgement]:
    """The last result of every scenario by its name."""
    results = load_results()
    return {row.name: row for row in results.scenarios} if results is not None else {}


def _timed(rows: Sequence[Judgement]) -> list[Judgement]:
    """The rows with what only a run tells, where one was written: how long it took to be confirmed, and so as what."""
    run = _load_rows()
    return [
        msgspec.structs.replace(row, confirmed_s=run[row.name].confirmed_s, kind=run[row.name].kind)
        if row.name in run
        else row
        for row in rows
    ]


def _write(rows: Sequence[Judgement], replayed: Replayed | None = None) -> None:
    """Put the rows into what ``docs/scenarios.json`` holds already, and make summary and page anew from all of it."""
    entries = {entry.scenario.name: entry for entry in load_catalogue()}
    latest = {row.name: row for row in (*_load_rows().values(), *rows) if row.name in entries}
    ran = [entry for name, entry in entries.items() if name in latest]
    skipped = {name: missing_need(entry) or "no result yet" for name, entry in entries.items() if name not in latest}
    ordered = [latest[entry.scenario.name] for entry in ran]
    baselines = [baseline for baseline in _load_baselines() if baseline.name in latest]
    if replayed is None and (before := load_results()) is not None:
        replayed = before.replayed
    results = msgspec.structs.replace(summarize(ran, ordered, baselines, skipped), replayed=replayed)
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
    RESULTS.with_suffix(".md").write_text(render(results, ran))
    RESULTS.with_suffix(".html").write_text(render_page(results, ran))


def _print_figures(results: Results, folder: Path | None) -> None:
    figures = results.figures
    print(
        f"{figures.hangs} hangs: culprits right in {figures.culprits:.1%}, cause first in {figures.cause_first:.1%}, among"
        f" the first three in {figures.cause_in_three:.1%}, {figures.wrong_proofs} wrong proofs; {figures.controls} controls:"
        f" {figures.false_alarms} called a hang; {figures.skipped} not run here"
    )
    if folder is not None:
        print(f"bundles are kept in {folder}")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scenarios", description=__doc__)
    parser.add_argument(
        "patterns", nargs="*", metavar="PATTERN", help="name, family/name or cause; * and ? as in a shell"
    )
    parser.add_argument("--list", action="store_true", help="name the scenarios and exit")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="how many at once (default 1)")
    parser.add_argument("--keep", metavar="DIR", help="where bundles are kept (default: a new folder in /tmp)")
    parser.add_argument("--verbose", action="store_true", help="show the output of what went wrong")
    parser.add_argument(
        "--write",
        action="store_true",
        help="put the results into docs/scenarios.json, .md and .html; with --recorded the verdicts, and times as they were",
    )
    parser.add_argument("--record", action="store_true", help="keep the hangs' captures for the tests")
    parser.add_argument("--recorded", action="store_true", help="run nothing: diagnose the kept captures again")
    parser.add_argument(
        "--record-controls", action="store_true", help="record the controls that are not recorded yet, over time"
    )
    parser.add_argument("--replay-controls", action="store_true", help="run nothing: judge the recorded controls again")
    parser.add_argument("--baselines", action="store_true", help="run torch's own time limit and analyzer instead")
    parser.add_argument(
        "--dumps", action="store_true", help="run the hangs on NCCL for torch's own dumps, and keep these"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
