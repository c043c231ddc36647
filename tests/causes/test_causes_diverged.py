"""Where ranks diverged: what in the program tells one cause from another that leaves nearly the same picture."""

from __future__ import annotations

import msgspec
import pytest

from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture
from scenarios import recording
from scenarios.catalogue import load_catalogue


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("clip-out-of-memory", "skipped-collective"),  # a `try` in the loop, by which iterations may be left
        ("only-the-user-speaks", "rank-conditional-collective"),  # it took another way through the function
        ("best-state-of-one-camera", "checkpoint-on-some-ranks"),  # the others are in the next round of the loop
        ("trigger-asked-for-by-main", "rank-conditional-collective"),  # `if is_main_process and check_trigger():`
        ("barrier-where-data-is-prepared", "rank-conditional-collective"),  # the others are in Lightning's own barrier
        ("room-without-a-scanner", "sharded-forward-divergence"),  # the condition is one of the model's forward
        ("flowa-price-desk", "child-stall"),  # a `Pipe` of two sockets, at which the child waits too
    ],
)
def test_the_first_cause(name: str, cause: str) -> None:
    """By the structure of the program alone."""
    (entry,) = load_catalogue([name])
    verdict = recording.verdict_of(entry)
    assert verdict.cause is not None
    assert verdict.cause.id == cause


@pytest.mark.parametrize(
    ("scenario", "cause", "said"),
    [
        ("eleven-files-for-four", "uneven-inputs", "`for name in FILES[rank::world]:`"),
        ("recall-over-eleven-files", "uneven-inputs", "`for name in files:`"),
        ("metrics-noted-on-one-rank", "rank-conditional-collective", "`for name in sorted(notes):`"),
        ("nothing-marked-in-two-pictures", "skipped-collective", '`if len(sample["boxes"]) == 0: return`'),
        ("word-in-an-older-table", "rank-conditional-collective", "the else of `try:`"),
        ("newspaper-of-short-articles", "uneven-inputs", "`for block in blocks(rank):`"),
        ("no-hail-at-the-station", "skipped-collective", "`except ValueError as error: continue`"),
        ("scores-failed-going-on", "skipped-collective", "under `if step % 40 == 0:` too"),
        ("settings-not-found", "skipped-collective", "the `try` in line 32"),
        ("figures-on-the-first", "collective-mismatch", "the two branches of one condition"),
        ("weights-of-some-claims", "tuple-labels-gather", "gathered nothing in it"),
        ("stages-and-transcripts", "uneven-inputs", "`for audio in recordings(96):`"),
        ("loss-of-the-last-stage", "rank-conditional-collective", "`if is_last:`"),
        ("forum-resume-offset", "uneven-inputs", "`for number, (x, y) in enumerate("),
        ("forum-lit-positives", "rank-conditional-collective", "has called fewer collectives in `for k, v in"),
        ("batch-without-pictures", "rank-conditional-collective", "`for p in model.parameters():`"),
        ("local-steps-counted-apart", "rank-conditional-collective", "has counted differently"),
        ("hands-ema-counter", "rank-conditional-collective", "`if guard.observe(loss.item()):`"),
        ("hands-layer-drop", "sharded-forward-divergence", "is still in a forward that rank"),
        ("lab-smiles-sampler", "generate-length-divergence", "still generates"),
        ("product-forecast-patience", "uneven-inputs", "has left the loop `for self.epoch in range(epochs):`"),
        ("product-chat-export", "checkpoint-on-some-ranks", "is saving, in export"),
        ("digest-export", "checkpoint-on-some-ranks", "Rank 0 is saving, in save"),  # beside another role
        ("campus-auc-suppress", "skipped-collective", "may have caught an exception there"),
        ("campus-lit-keys", "rank-conditional-collective", "`for _, result_metric in self.valid_items():`"),
        ("campus-species-report", "rank-conditional-collective", "has called fewer collectives"),
        ("birds-dawn-chorus", "rank-conditional-collective", "counts fewer iterations"),
        ("digest-columns", "rank-conditional-collective", "more iterations of `for name in sorted(self.pending):`"),
        ("campus-resume-counter", "checkpoint-on-some-ranks", "at the barrier beside `scratch.write("),
        ("drug-site-models", "checkpoint-on-some-ranks", "at the barrier beside `torch.save("),
        ("grid-best-refresh", "checkpoint-on-some-ranks", "at the barrier beside `torch.save("),
        ("reefs-ambient-profile", "rank-conditional-collective", "is in `for _ in range(self.steps):` again"),
        ("reef-tidal-store", "checkpoint-on-some-ranks", "Rank 1 is saving, in write"),
        ("reef-snapping-tp", "skipped-collective", "Rank 0 is 1 ahead in `for clip in range(320):`"),
        ("skies-archive-poll", "rank-conditional-collective", "past `if not self.ongoing: return`"),
        ("skies-lightcurve-sampling", "generate-length-divergence", "Rank 0 still generates"),
        ("river-recorded-since-june", "uneven-inputs", "`for levels, future in loader:`"),
        ("maila_sort_plan", "checkpoint-on-some-ranks", "at the barrier beside `torch.save("),
        ("millb-arc-furnace", "checkpoint-on-some-ranks", "Rank 0 is saving"),
        ("courtb-brief-writer", "checkpoint-on-some-ranks", "Rank 2 is saving, in write_state"),
        ("zooa-vet-notes", "generate-length-divergence", "Rank 0 still generates"),
        ("airfb-chat-intents", "rank-conditional-collective", "fewer collectives in `for intent in sorted({label for"),
        ("airfa-route-tables", "rank-conditional-collective", "the other side has returned there before that"),
        ("airfd-fare-board", "rank-conditional-collective", "rank 1 is behind that loop still"),
        (
            "opera-stems",
            "rank-conditional-collective",
            "is past `if not self.local: return`, in a function that calls one",
        ),
        ("bakea-icing-streaks", "rank-conditional-collective", "to a collective after as many operations as ever"),
        ("shipa-paintcell", "rank-conditional-collective", "more iterations of `for name in sorted(self.pending):`"),
        ("shipa-hydroexperts", "sharded-forward-divergence", "past `if chosen.size == 0: return` in forward"),
        ("shipa-blockflow", "p2p-mismatch", "none of them is on the other end"),
        ("shipb-dye-lab", "checkpoint-on-some-ranks", "state_dict()"),
        ("spaceb-reaction-wheels", "rank-conditional-collective", "came past `if not self.alarms: return`"),
        (
            "report-idle-expert",
            "sharded-forward-divergence",
            "Rank 0 is still in a backward that rank 1 is through with",
        ),
        ("booka-summary-decode", "generate-length-divergence", "Rank 0 still generates"),
        ("ferra-wake-model", "uneven-inputs", "has left the loop `for step in range(limit):`"),
        ("ferrb-tunnel-smoke", "skipped-collective", "by `if len(values) == 0: continue`"),
        ("flowb-export-window", "group-creation-mismatch", "Ranks 0,2 create a process group"),
        ("flowb-trend-trainer", "rank-conditional-collective", "Rank 1 is under `if self.control.should_log"),
        ("clocka-dials", "rank-conditional-collective", "(`if meter.seen > 0:`)"),
        ("clocka-estimates", "rank-conditional-collective", "more iterations of `for name in sorted(self.pending):`"),
        ("paperb-deed-finder", "rank-conditional-collective", "Rank 1 is in `for words, charter in loader:` again"),
        ("paperb-river-courses", "checkpoint-on-some-ranks", "Rank 0 is saving, in write_whole"),
        ("paperb-watermarks", "thread-order", "on rank 0 thread snapshots_0 came first"),
        ("saltc-compressor-codes", "rank-conditional-collective", '`if self.wanted in batch["codes"]:`'),
        ("saltd-mannequin-poses", "checkpoint-on-some-ranks", "Rank 1 is saving, in consolidate_state_dict"),
        ("reefs-best-agreement", "checkpoint-on-some-ranks", "is saving"),
        ("previews-by-the-wrapped-model", "rank-conditional-collective", "`if folder and step % 30 == 0:`"),
    ],
)
def test_the_loop_and_its_ways_decide(scenario: str, cause: str, said: str) -> None:
    """Data dealt out by rank, or a list of names, against the keys of a dictionary; a loop around a backward; an iteration left
    by an exception or in the function that does it; a condition never met in the same iteration, or met by both sides; a `try`
    around a call; a call in each branch; a pipeline that one stage has left; a loop that began at another number; a row of
    collectives that one side has left sooner; every so many of what the rank counts itself; one collective left out, and not
    the step; weights that a module gathers by code of its own; what is suppressed every so often; what was saved just before a
    barrier; names that an object has collected; a loop in what a collective is called with; the same under
    `@torch.no_grad()`; the first iteration of a loop after one in it; a loop of tries around a save; one line in two iterations;
    a helper that returns before its one collective; an exchange of experts left out of a backward;
    a save behind a barrier, or in a function that only saves; choices that are fed back; distinct values; a result kept; a key
    more; what is gathered without gradients; a hook that is passed as ever; an expression around a send; experts whose next layer
    one rank is in; what is kept in memory; a loop in `generate` itself; a call that is given the outcome of a loop; groups made
    for an export; a callback that asks a Trainer to log on one rank; a meter without samples, in a loop that gets on by
    conditions; the line of a `for`, where the next item is taken; what is saved as it is gathered; a thread on its way."""
    (entry,) = load_catalogue([scenario])
    found = recording.verdict_of(entry).cause
    assert found is not None
    assert found.id == cause
    assert said in found.explanation


def test_a_loop_that_may_begin_elsewhere_tells_no_iteration_that_was_left_out() -> None:
    """Ranks that have resumed from different steps are in different iterations all along."""
    (entry,) = load_catalogue(["reef-snapping-tp"])
    text = msgspec.json.encode(recording.load(entry)).decode()
    resumed = text.replace("for clip in range(320):", "for clip in range(first, 320):")
    assert resumed != text
    cause = diagnose(msgspec.json.decode(resumed, type=Capture)).verdict.cause
    assert cause is not None
    assert cause.id == "shape-mismatch"


def test_what_a_backward_left_out_may_be_a_collective_that_was_skipped() -> None:
    """An exchange between experts that the program has spread over the ranks itself: both names are used for it."""
    (entry,) = load_catalogue(["report-idle-expert"])
    verdict = recording.verdict_of(entry)
    assert verdict.cause is not None
    assert [one.id for one in (verdict.cause, *verdict.alternatives)][:2] == [
        "sharded-forward-divergence",
        "skipped-collective",
    ]
