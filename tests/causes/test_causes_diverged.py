"""Where ranks took different ways: how they parted, and which other causes leave nearly the same picture."""

from __future__ import annotations

import pytest

from corpus.catalogue import load_catalogue
from hangwatch.causes.knowledge import read_page
from hangwatch.model.incident import How
from scenarios.recording import verdict_of


@pytest.mark.parametrize(
    ("scenario", "how", "said"),
    [
        # A condition by rank, by value, and within an expression.
        ("early-stop-broadcast-by-main-only", "condition", "takes the branch `if rank == 0:`, which depends on the rank;"),
        ("trainer-evaluate-on-main", "condition", "`if trainer.is_world_process_zero():`, which depends on the rank;"),
        ("only-the-user-speaks", "condition", "Rank 0 takes the branch `if answered.any():`; rank 1 does not."),
        ("hands-ema-counter", "condition", "`if guard.observe(loss.item()):`; rank 1 does not."),
        ("trigger-asked-for-by-main", "condition", "Only rank 0 is in `if accelerator.is_main_process and accelerator."),
        # A guard in the way, the rest of an iteration left out, and a place that was reached too early.
        ("main-returns-before-the-gather", "guard", "Rank 1 passed `if self.rank == 0 and len(self.samples) >= 4: return`"),
        ("spaceb-reaction-wheels", "guard", "Rank 1 passed `if not self.alarms: return`; rank 0 may have left there."),
        ("clinic-dose", "guard", "`if not torch.isfinite(loss): continue` in this iteration; rank 1 did not: it skipped"),
        ("crops-cloud-segment", "guard", "it skipped the rest of an iteration and is ahead."),
        ("streeta-speed-forecast", "guard", "Rank 0 reached train/streeta_speed_forecast.py:57 too early: 53 times before"),
        ("batch-without-pictures", "guard", "Rank 1 reached train/towers.py:54 too early by 2 operations: 12 times"),
        # Fewer iterations, counted or not, and a `continue` by which one may have been skipped.
        ("forum-resume-offset", "loop", "It had 1 fewer iteration (counted by `number`)."),
        ("shard-shorter-behind-a-filter", "loop", "It had 1 fewer iteration (counted by `step`)."),
        ("eleven-files-for-four", "loop", "Rank 3 has left the loop `for name in FILES[rank::world]:`; rank 0 is still in it."),
        ("no-hail-at-the-station", "guard", "skipped an iteration by `except ValueError as error: continue`."),
        ("nothing-marked-in-two-pictures", "guard", 'skipped an iteration by `if len(sample["boxes"]) == 0: return`.'),
        # A `try` around the call that only one side is at.
        ("settings-not-found", "exception", "Rank 0 and rank 1 are at different operations of the same code."),
    ],
)  # fmt: skip
def test_how_ranks_parted_is_said(scenario: str, how: How, said: str) -> None:
    """As far as the source shows it; the remedies for it come first."""
    (entry,) = load_catalogue([scenario])
    truth, verdict = entry.scenario.truth, verdict_of(entry)
    assert truth is not None
    assert verdict.culprit_ranks == truth.culprits
    cause = verdict.cause
    assert cause is not None
    assert (cause.id, cause.how) == ("ranks-diverged", how)
    assert said in cause.explanation
    first = next(text for text in read_page("ranks-diverged").remedy if text.lower().startswith(f"{how}: "))
    assert cause.remedy[0].lower() == first.lower().removeprefix(f"{how}: ")
    assert cause.title != read_page("ranks-diverged").title


@pytest.mark.parametrize(
    ("scenario", "cause", "said"),
    [
        ("best-state-of-one-camera", "checkpoint-on-some-ranks", "The save is in save_state"),
        (
            "room-without-a-scanner",
            "sharded-forward-divergence",
            "The ranks run different modules: rank 0 is in a forward",
        ),
        ("flowa-price-desk", "child-stall", "waits for a child process in _recv"),  # a `Pipe` of two sockets
        ("figures-on-the-first", "collective-mismatch", "the two branches of one condition"),
        ("hands-layer-drop", "sharded-forward-divergence", "rank 0 is in a forward, in forward"),
        ("lab-smiles-sampler", "generate-length-divergence", "still generating"),
        ("digest-export", "checkpoint-on-some-ranks", "The save is in save"),  # beside another role
        ("campus-resume-counter", "checkpoint-on-some-ranks", "at the barrier next to `scratch.write("),
        ("shipa-hydroexperts", "sharded-forward-divergence", "past `if chosen.size == 0: return` in forward"),
        ("shipa-blockflow", "p2p-mismatch", "none of them makes the matching call"),
        ("shipb-dye-lab", "checkpoint-on-some-ranks", "state_dict()"),
        ("report-idle-expert", "sharded-forward-divergence", "rank 0 is in a backward, in swap"),
        ("flowb-export-window", "group-creation-mismatch", "Ranks 0,2 create a process group"),
        ("paperb-watermarks", "thread-order", "n rank 0 thread snapshots_0 came first"),
        ("saltd-mannequin-poses", "checkpoint-on-some-ranks", "The save is in consolidate_state_dict"),
    ],
)
def test_what_says_more_comes_first(scenario: str, cause: str, said: str) -> None:
    """A save, a model's forward, another operation: the ranks took different ways, and it is known what for."""
    (entry,) = load_catalogue([scenario])
    found = verdict_of(entry).cause
    assert found is not None
    assert found.id == cause
    assert said in found.explanation
    assert found.how is None
