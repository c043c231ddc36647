"""The catalogue's results as Markdown and JSON: figures, confusion matrix, one line a scenario. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from scenarios.baselines import TIMEOUT_S, Baseline
from scenarios.catalogue import Entry
from scenarios.judging import Judgement

#: What the project asks of itself: shares of the hangs, seconds for a proof.
BAR = {"culprits": 0.95, "cause_first": 0.90, "cause_in_three": 0.98}
PROOF_WITHIN_S = 3.0
PROOF_MEDIAN_S = 2.0
BEYOND_PATIENCE_S = 5.0


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


class Results(msgspec.Struct, frozen=True):
    """All that a run of the catalogue gives; what ``docs/scenarios.json`` holds."""

    figures: Figures
    confusion: dict[str, dict[str, int]]
    scenarios: tuple[Judgement, ...]
    baselines: tuple[Baseline, ...]
    skipped: dict[str, str]


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
    """The Markdown page."""
    described = {entry.scenario.name: entry.scenario.describes for entry in entries}
    parts = [
        "# The catalogue of scenarios",
        "Small real programs, each a way in which training hangs, or looks as if it did. `make scenarios` runs them under"
        " `hangwatch run` and holds every verdict against the truth beside the program (`tests/scenarios/programs`). This page"
        " is made from `scenarios.json`, which holds the last result of each; do not edit it.",
        _figures(results.figures),
        "## What was said of what\n\nRows: the true cause; what was named first, and how often. *nothing*: no incident.",
        _table(("true cause", "said"), [(f"`{true}`", _said(true, said)) for true, said in results.confusion.items()]),
        "## Hangs",
        *_without_us(results, entries),
        _hangs(results, described),
        "## Controls",
        _controls(results, described),
    ]
    if results.skipped:
        lines = [f"- {name}: {reason}" for name, reason in sorted(results.skipped.items())]
        parts += ["## Not run here", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def _figures(figures: Figures) -> str:
    lines = [
        ("culprits right", f"{figures.culprits:.1%} of {figures.hangs} hangs", f"{BAR['culprits']:.0%}"),
        ("cause first", f"{figures.cause_first:.1%}", f"{BAR['cause_first']:.0%}"),
        ("cause among the first three", f"{figures.cause_in_three:.1%}", f"{BAR['cause_in_three']:.0%}"),
        ("both source lines right, where the truth names them", f"{figures.lines:.1%}", ""),
        ("wrong proofs", str(figures.wrong_proofs), "0"),
        ("hang verdicts on controls", f"{figures.false_alarms} of {figures.controls}", "0"),
        (
            "proven: onset to confirmation",
            _seconds(figures.proven_s),
            f"{PROOF_WITHIN_S:g} s, median {PROOF_MEDIAN_S:g} s",
        ),
        ("unproven: beyond the patience", _seconds(figures.beyond_patience_s), f"{BEYOND_PATIENCE_S:g} s"),
    ]
    return _table(("", "measured", "bar"), lines)


def _seconds(latency: Latency | None) -> str:
    if latency is None:
        return "not measured"
    return f"median {latency.median:g} s, 90 % within {latency.ninetieth:g} s, largest {latency.largest:g} s ({latency.count})"


def _said(true: str, said: Mapping[str, int]) -> str:
    ordered = sorted(said.items(), key=lambda item: (item[0] != true, -item[1], item[0]))
    return ", ".join(f"{name} {count}" if name == true else f"**{name} {count}**" for name, count in ordered)


def _hangs(results: Results, described: Mapping[str, str]) -> str:
    baselines = {baseline.name: baseline for baseline in results.baselines}
    lines = [
        (
            f"**{row.name}**: {described[row.name]}",
            f"{row.kind}{', proven' if row.proven else ''}: `{row.said}`",
            f"{row.confirmed_s:.1f} s" if row.confirmed_s is not None else "",
            "; ".join(row.wrong) or "as it is",
            *(_beside(baselines.get(row.name)) if baselines else ()),
        )
        for row in results.scenarios
        if row.culprits_right is not None
    ]
    head = ("scenario", "hangwatch says", "after", "against the truth")
    if not baselines:
        return _table(head, lines)
    return _table((*head, "torch's time limit", "torchfrtrace"), lines)


def _without_us(results: Results, entries: Sequence[Entry]) -> tuple[str, ...]:
    """What there is without hangwatch: how it was asked, and how often it told."""
    if not results.baselines:
        return ()
    truths = {entry.scenario.name: entry.scenario.truth for entry in entries}
    told = [(b, truth) for b in results.baselines if (truth := truths.get(b.name)) is not None]
    count = len(told)
    named = [(b.timeout_names, truth) for b, truth in told if b.timeout_names is not None]
    right = sum(rank in truth.culprits for rank, truth in named)
    failed = sum(b.timeout_says is not None for b, _ in told)
    says = Counter(b.analyzer_says.partition(":")[0] for b, _ in told)
    ends = ", ".join(f"*{what}* ({often})" for what, often in says.most_common())
    return (
        "Beside each hang stands what there is without hangwatch: the first error that any rank printed when the time limit of"
        f" collectives was {TIMEOUT_S:g} s (Gloo's default is 1,800 s, NCCL's 600 s) and the rank that torchrun called the"
        " first to fail; and the last line of torch's analyzer `torchfrtrace`, given every rank's flight recorder.",
        f"Of {count} hangs, {failed} ended in an error of some rank; for {len(named)} of"
        f" them torchrun named a rank, which was one of the culprits in {right}. The analyzer ended with"
        f" {ends}. It is made for NCCL: Gloo (torch 2.13) writes"
        " its groups under an empty name, where the analyzer cannot find them.",
    )


def _beside(baseline: Baseline | None) -> tuple[str, str]:
    if baseline is None:
        return "", ""
    says = baseline.timeout_says or f"nothing within {baseline.waited_s:.0f} s"
    named = f"; names rank {baseline.timeout_names}" if baseline.timeout_names is not None else ""
    return _cell(says) + named, _cell(baseline.analyzer_says)


def _controls(results: Results, described: Mapping[str, str]) -> str:
    lines = [
        (f"**{row.name}**: {described[row.name]}", row.kind, "; ".join(row.wrong) or "no hang reported")
        for row in results.scenarios
        if row.culprits_right is None
    ]
    return _table(("scenario", "incident", "against the truth"), lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(cell.replace("\n", " ") for cell in row) + " |" for row in rows)
