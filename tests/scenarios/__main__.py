"""``python -m scenarios [PATTERN ...]``: run the catalogue, or what of it matches, and say how it went."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from scenarios.baselines import Baseline, run_baselines
from scenarios.browsing import render_page
from scenarios.catalogue import HERE, Entry, load_catalogue
from scenarios.dumping import keep_dumps
from scenarios.judging import Judgement, Run, find_hang, judge
from scenarios.recording import CAPTURES, judge_again, path, record
from scenarios.running import missing_need, run_all
from scenarios.tables import Results, meets_bar, render, summarize

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
    skipped = {e.scenario.name: reason for e in entries if (reason := missing_need(e)) is not None}
    wanted = [entry for entry in entries if entry.scenario.name not in skipped]
    if not wanted:
        reasons = "; ".join(f"{name} {reason}" for name, reason in skipped.items())
        print(f"scenarios: nothing to run: {reasons or 'no name matches (--list names all)'}", file=sys.stderr)
        return 2
    folder = Path(options.keep or tempfile.mkdtemp(prefix="hangwatch-scenarios-"))
    if options.baselines:
        _measure_baselines(wanted, folder / "baselines", options.jobs)
        return 0
    if options.dumps:
        hangs = [entry for entry in wanted if entry.scenario.truth is not None and entry.scenario.simulated]
        for number, kept in enumerate(keep_dumps(hangs, folder / "dumps"), 1):
            how = "asked for" if kept.asked else "written when the time limit was reached"
            print(f"[{number}/{len(hangs)}] {kept.name}: {kept.dumps} dumps, {how}", flush=True)
        return 0
    if options.recorded:
        wanted = [entry for entry in wanted if path(entry).exists()]
        rows = [judge_again(entry) for entry in wanted]
        print("\n".join(line_of(row, None) for row in rows))
        if options.write:
            _write(_timed(rows))
        _print_figures(summarize(wanted, rows, [], {}), None)
        return 0
    kept = CAPTURES if options.record else None
    rows = list(run_and_judge(wanted, folder, at_once=options.jobs, kept=kept, verbose=options.verbose))
    results = summarize(wanted, rows, [], skipped)
    if options.write:
        _write(rows)
    _print_figures(results, folder)
    return 0 if meets_bar(results.figures) else 1


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


def _load_results() -> dict[str, Judgement]:
    """The last result of every scenario by its name."""
    rows = msgspec.json.decode(RESULTS.read_bytes(), type=Results).scenarios if RESULTS.exists() else ()
    return {row.name: row for row in rows}


def _timed(rows: Sequence[Judgement]) -> list[Judgement]:
    """The rows with what only a run tells, where one was written: how long it took to be confirmed, and so as what."""
    run = _load_results()
    return [
        msgspec.structs.replace(row, confirmed_s=run[row.name].confirmed_s, kind=run[row.name].kind)
        if row.name in run
        else row
        for row in rows
    ]


def _write(rows: Sequence[Judgement]) -> None:
    """Put the rows into what ``docs/scenarios.json`` holds already, and make summary and page anew from all of it."""
    entries = {entry.scenario.name: entry for entry in load_catalogue()}
    latest = {row.name: row for row in (*_load_results().values(), *rows) if row.name in entries}
    ran = [entry for name, entry in entries.items() if name in latest]
    skipped = {name: missing_need(entry) or "not run yet" for name, entry in entries.items() if name not in latest}
    ordered = [latest[entry.scenario.name] for entry in ran]
    baselines = [baseline for baseline in _load_baselines() if baseline.name in latest]
    results = summarize(ran, ordered, baselines, skipped)
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
    parser.add_argument("--baselines", action="store_true", help="run torch's own time limit and analyzer instead")
    parser.add_argument(
        "--dumps", action="store_true", help="run the hangs on NCCL for torch's own dumps, and keep these"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
