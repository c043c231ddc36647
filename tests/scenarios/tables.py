"""The catalogue's results: figures, and the Markdown summary of them. Pure.

Every scenario by itself is in ``docs/scenarios.json``, and in the page that ``browsing.py`` makes of it.
"""

from __future__ import annotations

import statistics
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from corpus.entries import Entry
from scenarios.baselines import TIMEOUT_S, Baseline
from scenarios.judging import Judgement

#: What the project asks of itself: shares of the hangs, seconds for a proof.
BAR = {"culprits": 0.95, "cause_first": 0.90, "cause_in_three": 0.98}
PROOF_WITHIN_S = 3.0
PROOF_MEDIAN_S = 2.0
BEYOND_PATIENCE_S = 5.0
#: More names in a row nobody reads; scenarios.json has them.
NAMES_AT_MOST = 20


class Latency(msgspec.Struct, frozen=True):
    """Seconds from onset to confirmation."""

    count: int
    median: float
    ninetieth: float
    largest: float


class Figures(msgspec.Struct, frozen=True):
    """The catalogue in numbers. Shares are of the hangs that ran, 0..1; latencies are None where nothing was measured.

    ``beyond_patience``: seconds by which unproven verdicts came after the patience of their scenario.
    """

    hangs: int
    controls: int
    skipped: int
    culprits: float
    cause_first: float
    cause_in_three: float
    lines: float
    wrong_proofs: int
    false_alarms: int
    proven_s: Latency | None
    beyond_patience_s: Latency | None


class Replayed(msgspec.Struct, frozen=True):
    """What replays of so many recorded controls say: how many of them are hangs, by the patience.

    ``load``: how busy the machine was when they were recorded (``corpus.controls.Recording``), the median.
    """

    controls: int
    load: float
    called_hangs: dict[str, int]


class Results(msgspec.Struct, frozen=True):
    """All that a run of the catalogue gives; what ``docs/scenarios.json`` holds."""

    figures: Figures
    confusion: dict[str, dict[str, int]]
    scenarios: tuple[Judgement, ...]
    baselines: tuple[Baseline, ...]
    skipped: dict[str, str]
    replayed: Replayed | None = None


def summarize(
    entries: Sequence[Entry], rows: Sequence[Judgement], baselines: Sequence[Baseline], skipped: Mapping[str, str]
) -> Results:
    """Put the rows of a run together. ``entries`` are those of the rows."""
    patience = {entry.scenario.name: entry.scenario.patience_s for entry in entries}
    hangs = [row for row in rows if row.culprits_right is not None]
    with_lines = [row for row in hangs if row.lines_right is not None]
    timed = [(row, row.confirmed_s) for row in hangs if row.confirmed_s is not None and row.kind != "straggler"]
    figures = Figures(
        hangs=len(hangs),
        controls=len(rows) - len(hangs),
        skipped=len(skipped),
        culprits=_share([bool(row.culprits_right) for row in hangs]),
        cause_first=_share([bool(row.cause_first) for row in hangs]),
        cause_in_three=_share([bool(row.cause_in_three) for row in hangs]),
        lines=_share([bool(row.lines_right) for row in with_lines]),
        wrong_proofs=sum(row.wrong_proof for row in rows),
        false_alarms=sum(row.false_alarm for row in rows),
        proven_s=_latency([seconds for row, seconds in timed if row.proven]),
        beyond_patience_s=_latency([seconds - patience[row.name] for row, seconds in timed if not row.proven]),
    )
    confusion: dict[str, Counter[str]] = {}
    for row in rows:
        confusion.setdefault(row.expected, Counter())[row.said] += 1
    return Results(
        figures,
        {expected: dict(sorted(said.items())) for expected, said in sorted(confusion.items())},
        tuple(rows),
        tuple(baselines),
        dict(skipped),
    )


def _share(right: Sequence[bool]) -> float:
    return round(sum(right) / len(right), 4) if right else 1.0


def _latency(seconds: Sequence[float]) -> Latency | None:
    if not seconds:
        return None
    ordered = sorted(seconds)
    ninetieth = ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))]
    return Latency(len(ordered), round(statistics.median(ordered), 2), round(ninetieth, 2), round(ordered[-1], 2))


def meets_bar(figures: Figures) -> bool:
    """Whether the shares are reached, and no proof is wrong and no control was called a hang."""
    shares = all(getattr(figures, name) >= share for name, share in BAR.items())
    return shares and figures.wrong_proofs == 0 and figures.false_alarms == 0


def render(results: Results, entries: Sequence[Entry]) -> str:
    """The Markdown summary: figures, shares of each family, confusion between causes, every miss, how it was measured."""
    sure = {true: _named(true, named) for true, named in results.confusion.items() if {*named} == {true}}
    parts = [
        "# Scenarios",
        f"The catalogue has {len(results.scenarios) + results.figures.skipped} small real programs. Each one hangs in a way in"
        " which distributed training hangs, or looks as if it did. The figures below are of"
        f" {len(results.scenarios)} of them: {results.figures.hangs} hangs and {results.figures.controls} controls, which"
        " look like hangs. The others [have no result yet](#not-run-here). `make scenarios` runs them under `hangwatch run` and"
        " compares every verdict with the truth that is stored beside the program ([corpus](../corpus/README.md)).",
        "To search all scenarios, download [scenarios.html](scenarios.html) and open it in a browser; it needs no network."
        " [scenarios.json](scenarios.json) is the same for programs. `make scenarios OPTIONS=--write` generates both, and this"
        " page; do not edit them.",
        _figures(results.figures, results.replayed),
        "The rules were improved on most of these programs. How often they are right on new programs is in"
        " [first verdicts](history/blind-verdicts.md).",
        "## By family",
        _families(results.scenarios),
        "## Confusion between causes",
        "For each true cause, how often each cause was named first. Bold marks a wrong one. *nothing* means no incident.",
        _table(
            ("true cause", "named first"),
            # Those of controls are in the table above.
            [
                (f"`{t}`", _named(t, named))
                for t, named in results.confusion.items()
                if t not in sure and t != "control"
            ],
        ),
        f"Always right: {', '.join(sure.values())}.",
        "## What is wrong",
        "These are the hangs with a wrong culprit or a wrong first cause, and the controls (healthy programs) that were"
        " reported. scenarios.html has the details.",
        _misses(results.scenarios),
        "## How it was measured",
        "Each program starts like a user's job, with `hangwatch run` before the command. The stall timeout is that of its"
        " `.toml` file, by default 6 s. The truth is decided from the program before any verdict. The latency runs from the"
        " onset (the oldest pending operation was enqueued) to the confirmed verdict. A `straggler` is a warning and has no"
        " target. It becomes a `stall` after ten times the stall timeout, at least 5 min: this explains the largest latency."
        " When a rule changes, verdicts are renewed from the kept captures; latencies are those of the last run.",
        "Replayed controls are recorded from start to end: each heartbeat, each list of ranks, and a capture wherever any"
        " stall timeout could ask for one. The agent's own decisions run on these with the clock of the recording"
        " ([how](development.md#controls)).",
        *_without_us(results, entries),
    ]
    if results.skipped:
        parts += ["## Not run here", "scenarios.json names all of them.", _skipped(results.skipped)]
    return "\n\n".join(map(_wrapped, parts)) + "\n"


def _wrapped(part: str) -> str:
    """A paragraph or an item in short lines; tables as they are."""
    if part.startswith("|"):
        return part
    indent = "  " if part.startswith("- ") else ""
    return "\n".join(
        wrapped
        for line in part.split("\n")
        for wrapped in textwrap.wrap(
            line, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
    )


def _families(rows: Sequence[Judgement]) -> str:
    """A line for each family with a miss, and one for all others, so that the summary keeps its length."""
    missed = sorted({row.family for row in rows if not row.good})
    lines = [(f"`{family}`", *_shares([row for row in rows if row.family == family])) for family in missed]
    others = [row for row in rows if row.family not in missed]
    if others:
        lines.append((f"{len({row.family for row in others})} others", *_shares(others)))
    head = ("family", "hangs", "culprits right", "cause first", "cause among three", "hang verdicts on controls")
    return _table(head, lines)


def _shares(rows: Sequence[Judgement]) -> tuple[str, ...]:
    hangs = [row for row in rows if row.culprits_right is not None]
    right = [
        sum(map(bool, r))
        for r in zip(*((h.culprits_right, h.cause_first, h.cause_in_three) for h in hangs), strict=True)
    ]
    alarms = sum(row.false_alarm for row in rows)
    return (str(len(hangs)), *(map(str, right) if hangs else ("", "", "")), f"{alarms} of {len(rows) - len(hangs)}")


def _misses(rows: Sequence[Judgement]) -> str:
    """A line a family, so that the summary keeps its length while the catalogue grows."""
    bad = [row for row in rows if not row.good]
    families = sorted({row.family for row in bad})
    lines = [
        (f"`{family}`", "; ".join(f"`{r.name}` ({_main_difference(r)})" for r in bad if r.family == family))
        for family in families
    ]
    return _table(("family", "first difference from the truth"), lines) if lines else "None."


def _main_difference(row: Judgement) -> str:
    return _cell(row.wrong[0]) if row.wrong else f"cause {row.said} and not {row.expected}"


def _skipped(skipped: Mapping[str, str]) -> str:
    """A line a reason: the names, or their number where they are many."""
    of_reason = {why: sorted(n for n in skipped if skipped[n] == why) for why in sorted(set(skipped.values()))}
    return "\n".join(
        f"- {why}: {', '.join(f'`{n}`' for n in names) if len(names) <= NAMES_AT_MOST else f'{len(names)} programs'}"
        for why, names in of_reason.items()
    )


def _figures(figures: Figures, replayed: Replayed | None) -> str:
    lines = [
        ("culprits right", f"{figures.culprits:.1%} of {figures.hangs} hangs", f"{BAR['culprits']:.0%}"),
        ("cause first", f"{figures.cause_first:.1%}", f"{BAR['cause_first']:.0%}"),
        ("cause among the first three", f"{figures.cause_in_three:.1%}", f"{BAR['cause_in_three']:.0%}"),
        ("both source lines right, where the truth names them", f"{figures.lines:.1%}", ""),
        ("wrong proofs", str(figures.wrong_proofs), "0"),
        ("hang verdicts on controls", f"{figures.false_alarms} of {figures.controls}", "0"),
        *_replayed(replayed),
        (
            "proven: onset to confirmation",
            _seconds(figures.proven_s),
            f"{PROOF_WITHIN_S:g} s, median {PROOF_MEDIAN_S:g} s",
        ),
        ("unproven: beyond the stall timeout", _seconds(figures.beyond_patience_s), f"{BEYOND_PATIENCE_S:g} s"),
    ]
    return _table(("", "measured", "target"), lines)


def _replayed(replayed: Replayed | None) -> list[tuple[str, str, str]]:
    """A line for each patience."""
    if replayed is None:
        return []
    of = f"of {replayed.controls}, recorded at {replayed.load:.0f} busy processes a core"
    return [
        (f"hang verdicts on replayed controls, stall timeout {patience}", f"{hangs} {of}", "0")
        for patience, hangs in replayed.called_hangs.items()
    ]


def _seconds(latency: Latency | None) -> str:
    if latency is None:
        return "not measured"
    return f"median {latency.median:g} s, 90 % within {latency.ninetieth:g} s, largest {latency.largest:g} s ({latency.count})"


def _named(true: str, named: Mapping[str, int]) -> str:
    right = "nothing" if true == "control" else true
    ordered = sorted(named.items(), key=lambda item: (item[0] != right, -item[1], item[0]))
    return ", ".join(f"{name} {count}" if name == right else f"**{name} {count}**" for name, count in ordered)


def _without_us(results: Results, entries: Sequence[Entry]) -> tuple[str, ...]:
    """What the tools that come with torch report of the same hangs."""
    if not results.baselines:
        return ()
    truths = {entry.scenario.name: entry.scenario.truth for entry in entries}
    measured = [(b, truth) for b in results.baselines if (truth := truths.get(b.name)) is not None]
    named = [(b.timeout_names, truth) for b, truth in measured if b.timeout_names is not None]
    right = sum(rank in truth.culprits for rank, truth in named)
    failed = sum(b.timeout_says is not None for b, _ in measured)
    says = Counter(b.analyzer_says.partition(":")[0] for b, _ in measured)
    ends = ", ".join(f"*{what}* ({often})" for what, often in says.most_common())
    return (
        "## The same hangs without hangwatch",
        "Two tools come with torch.",
        f"- The *time limit of collectives*, lowered to {TIMEOUT_S:g} s (default: 1,800 s on Gloo, 600 s on NCCL). Of"
        f" {len(measured)} hangs, {failed} ended in an error of some rank. In {len(named)} of these, torchrun named a first rank"
        f" to fail. This rank was a culprit in {right}.",
        f"- The *analyzer* `torchfrtrace`, given every rank's flight recorder, ended with {ends}. It is made for NCCL. Gloo"
        " (torch 2.13) writes its groups under an empty name, where the analyzer cannot find them.",
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(cell.replace("\n", " ") for cell in row) + " |" for row in rows)
