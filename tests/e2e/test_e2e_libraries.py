"""Hangs that real libraries make by their own loops and processes, and the same programs where they end well."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from watched_runs import find_bundles, read_incident, torchrun

from hangwatch.model.errors import EXIT_STOPPED
from hangwatch.model.incident import HANG_KINDS, Incident, Verdict
from support import JOBS, JobRunner, wait_for

pytestmark = pytest.mark.usefixtures("long")
_LIMIT_S = 180.0


@dataclass(frozen=True)
class Hang:
    """A program, what it is started with, and what is true of it.

    ``lines``: a piece of the culprits' line and of the others'. ``says``: pieces of the explanation.
    """

    program: str
    lines: tuple[str, str]
    says: tuple[str, ...]
    how: str
    culprits: tuple[int, ...]


#: All are proven; which rank went its own way, and at which line of the program.
HANGS = (
    Hang(
        "trainer_stops.py",
        ("trainer.train()", "trainer.train()"),
        ("Rank 1 has left the loop", "of transformers", "`if self.control.should_training_stop: break`"),
        "loop",
        (1,),
    ),
    Hang(
        "trainer_watches.py",
        ("all_reduce(gradients)", "trainer.train()"),
        ("`if model.last_loss > 50:`",),
        "condition",
        (0,),
    ),
    Hang(
        "dispatching.py",
        ("accelerator.gather(", "in enumerate(loader):"),
        ("Rank 1 has left the loop", "`if worst > 6.0: break`"),
        "loop",
        (1,),
    ),
    Hang("lightning_logs.py", ("trainer.fit(", "trainer.fit("), ("logged with `sync_dist=True`",), "condition", (0, 1)),
    Hang(
        "lightning_metrics.py",
        ("self.accuracy.compute()", "trainer.fit("),
        ("self.global_rank == 0",),
        "condition",
        (0,),
    ),
    Hang(
        "lightning_reduces.py",
        ("trainer.strategy.reduce(", "trainer.fit("),
        ('`if outputs["loss"] > 50:`',),
        "condition",
        (0,),
    ),
    Hang(
        "lightning_stops.py",
        ("trainer.test(", "trainer.fit("),
        ("Rank 1 has left the loop", "of lightning"),
        "loop",
        (1,),
    ),
    Hang(
        "pipelined.py", ("schedule.step(target=batch)", "dist.barrier()"), ("Rank 0 has left the loop",), "loop", (0, 1)
    ),
)
#: What others of these show as well, or captures of the corpus of the same library.
REPEATED = frozenset(
    {
        "dispatching.py",
        "lightning_metrics.py",
        "lightning_reduces.py",
        "lightning_stops.py",
        "pipelined.py",
        "trainer_watches.py",
    }
)


def stopped(jobs: JobRunner, folder: Path, program: str, *arguments: str) -> Incident:
    """The incident for which hangwatch has stopped a job."""
    options = ("--stall-after", "5", "--act-after", "2", "--on-hang", "stop", "--state-dir", folder / "state")
    job = jobs.hangwatch("run", *options, "--", *torchrun(JOBS / program, *arguments))
    assert job.wait(_LIMIT_S) == EXIT_STOPPED, job.stderr()
    return read_incident(find_bundles(folder / "state")[-1])


def test_workers_of_a_data_set_that_wait_for_threads_of_their_parent(jobs: JobRunner, tmp_path: Path) -> None:
    """The parent polls a manager's queue: that is no progress, and its workers make none."""
    found = stopped(jobs, tmp_path, "mapping.py").verdict
    assert (found.kind, found.culprit_ranks, found.waiting_ranks) == ("stall", (0,), (1,))
    assert found.cause is not None
    assert found.cause.id == "fork-deadlock"
    assert "encode (" in found.cause.explanation


def test_workers_of_a_data_set_that_go_on(jobs: JobRunner, tmp_path: Path) -> None:
    """The same program without OpenMP in its workers ends by itself, and is never called a hang."""
    job = jobs.hangwatch(
        "run", "--stall-after", "5", "--state-dir", tmp_path / "state", "--", *torchrun(JOBS / "mapping.py", "safely")
    )
    assert job.wait(_LIMIT_S) == 0, job.stderr()
    assert not any(read_incident(one).verdict.kind in HANG_KINDS for one in find_bundles(tmp_path / "state"))


@pytest.mark.parametrize(
    "hang",
    [pytest.param(h, id=h.program, marks=[pytest.mark.soak] if h.program in REPEATED else []) for h in HANGS],
)
def test_ranks_that_part_in_the_loop_of_a_library(hang: Hang, jobs: JobRunner, tmp_path: Path) -> None:
    """The user's own lines where they first differ are shown, and no condition of the library's is taken for the reason."""
    found = stopped(jobs, tmp_path, f"loops/{hang.program}").verdict
    assert (found.kind, found.proven, found.culprit_ranks) == ("deadlock", True, hang.culprits)
    assert found.cause is not None
    assert (found.cause.id, found.cause.how) == ("ranks-diverged", hang.how)
    assert all(piece in found.cause.explanation for piece in hang.says), found.cause.explanation
    assert found.divergence is not None
    shown = [line.source or "" for line in (found.divergence.culprit, found.divergence.others) if line is not None]
    assert [piece in line for piece, line in zip(hang.lines, shown, strict=True)] == [True, True], shown


def test_a_regular_expression_that_never_ends(jobs: JobRunner, tmp_path: Path) -> None:
    """The rank computes, so that it is a warning: which call it is, that it keeps the GIL, and when it counts as a hang.

    The patience leaves time for the rank to come to that call, and to send no heartbeat for a while. If the first look does not
    show who has the GIL, as on a busy machine, the incident is reported again.
    """

    def named() -> Verdict | None:
        verdicts = [read_incident(bundle).verdict for bundle in find_bundles(tmp_path)]
        return next((v for v in verdicts if v.cause is not None and v.cause.id == "gil-held"), None)

    program = torchrun(JOBS / "loops" / "matching.py")
    job = jobs.hangwatch("run", "--stall-after", "20", "--state-dir", tmp_path, "--", *program)
    found = wait_for(named, _LIMIT_S, "the call that keeps the GIL")
    job.end()
    assert len(find_bundles(tmp_path)) == 1
    assert (found.kind, found.culprit_ranks, found.waiting_ranks) == ("straggler", (1,), (0,))
    assert found.cause is not None
    assert '_RULER.match(row["text"])' in found.cause.explanation
    assert found.summary.endswith("It counts as a hang once the wait has lasted 300 s.")
