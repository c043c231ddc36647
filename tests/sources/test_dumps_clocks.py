"""Clocks of hosts that are minutes apart: who is blamed does not depend on them, and times are those of one clock."""

from __future__ import annotations

import os
import pickle
import random
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from dump_jobs import BEGAN_NS, dump, entry, world
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.incident import Verdict
from hangwatch.postmortem.artifacts import read_artifacts
from hangwatch.sources.dumps.contents import Content
from hangwatch.sources.dumps.gathering import Gathered, estimate_skews, gather

DUMPS = Path(__file__).resolve().parents[1] / "fixtures" / "dumps"
_TIMES = ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns")
_SECOND = 1_000_000_000


def shifted(one: Mapping[str, Any], by_s: float) -> dict[str, Any]:
    """A dump of a host whose clock is ahead by that much."""
    by_ns = int(by_s * _SECOND)
    entries = [e | {name: e[name] + by_ns for name in _TIMES if e.get(name)} for e in one["entries"]]
    return {**one, "entries": entries}


def look(dumps: Mapping[int, Mapping[str, Any]]) -> Gathered:
    """What these dumps tell."""
    contents = [Content(f"rank_{r}", data=pickle.dumps(one, protocol=2)) for r, one in dumps.items()]
    return gather(contents, job="job", total=None, progress=lambda _done, _total: None)


def reported(verdict: Verdict) -> object:
    """What a verdict says that does not depend on times."""
    cause = verdict.cause.id if verdict.cause is not None else None
    collective = verdict.collective
    where = (collective.op, collective.group_ranks, collective.seq) if collective is not None else None
    return verdict.kind, verdict.proven, verdict.culprit_ranks, verdict.waiting_ranks, cause, where


@pytest.mark.parametrize("fault", ["gpu_error_1st", "lock_gil_1st"])
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(clocks=st.lists(st.integers(-600, 600), min_size=4, max_size=4))
@pytest.mark.usefixtures("real")
def test_the_verdict_of_a_real_job_does_not_depend_on_clocks(fault: str, clocks: list[int]) -> None:
    """Four hosts of a real job, each minutes off: the same ranks, the same collective, the same cause."""
    with tarfile.open(DUMPS / f"{fault}.tar.gz") as archive:
        dumps = {
            int(m.name.rpartition("_")[2]): pickle.loads(stream.read())  # noqa: S301  # our own fixture
            for m in archive.getmembers()
            if (stream := archive.extractfile(m)) is not None
        }
    asked = reported(diagnose(look(dumps).capture).verdict)
    assert (
        reported(diagnose(look({r: shifted(one, clocks[r // 4]) for r, one in dumps.items()}).capture).verdict) == asked
    )


def job(done: int, pending: bool) -> list[dict[str, Any]]:
    """A rank's collectives, a second apart, each found completed 0.3 s after it was enqueued."""
    entries = []
    for seq in range(1, done + 1 + pending):
        created = BEGAN_NS + seq * _SECOND
        ended = created + 300_000_000 if seq <= done else None
        state = "completed" if ended else "started"
        times = {"time_created_ns": created, "time_discovered_completed_ns": ended}
        entries.append(entry(seq - 1, "all_reduce", seq, state=state, **times))
    return entries


def test_clocks_that_are_apart_are_named_and_corrected() -> None:
    """Whole dumps hold what every rank completed together: the hosts' clocks are seen to differ, and times are of one of them."""
    dumps = {r: dump(job(40, pending=r != 5), world(8)) for r in range(8)}
    plain = look(dumps).capture
    off = look(
        {r: shifted(one, {2: 183.4, 3: 183.1}.get(r, -75.0 if r == 7 else 0.0)) for r, one in dumps.items()}
    ).capture
    assert reported(diagnose(off).verdict) == reported(diagnose(plain).verdict)
    assert diagnose(off).case.onset_ns == pytest.approx(diagnose(plain).case.onset_ns, abs=_SECOND)
    assert [str(gap) for gap in off.gaps if "clocks" in gap.reason] == [
        "flight recorder: clocks differ; times were corrected: ranks 2-3 were 183 s ahead, rank 7 was 75 s behind "
        "(synchronize the clocks of all hosts (NTP, chrony))"
    ]
    assert plain.gaps == ()


def test_a_rank_that_was_late_has_no_other_clock() -> None:
    """Who came minutes late to the last operations, or found some of them completed late, is not taken for another clock."""
    times = {r: {("g", seq): BEGAN_NS + seq * _SECOND for seq in range(30)} for r in range(4)}
    for seq in range(26, 30):
        times[2]["g", seq] += 200 * _SECOND
    assert estimate_skews(times) == {}


def test_clocks_are_compared_along_groups() -> None:
    """Ranks that share no group are compared through those they share one with; who shares none is left as it is."""
    at = lambda group, seq, by_s: ((group, seq), BEGAN_NS + (seq + by_s) * _SECOND)  # noqa: E731
    clocks = {0: 0, 1: 0, 2: 100, 3: 100, 4: 0}
    groups = {0: "a", 1: "ab", 2: "bc", 3: "c", 4: "d"}
    times = {r: dict(at(g, s, clocks[r]) for g in groups[r] for s in range(5)) for r in clocks}
    shuffled = list(times)
    random.Random(3).shuffle(shuffled)
    assert estimate_skews({r: times[r] for r in shuffled}) == {2: 100 * _SECOND, 3: 100 * _SECOND}


def test_young_operations_are_no_waits_by_any_clock(tmp_path: Path) -> None:
    """Dumps taken at once of a job that runs show no hang, though the clocks of its hosts are minutes apart."""
    for rank in range(4):
        ahead_s = 240 if rank < 2 else 0
        entries = [{**e, "time_discovered_completed_ns": None} for e in job(40, pending=rank != 1)]
        (tmp_path / f"rank_{rank}").write_bytes(pickle.dumps(shifted(dump(entries, world(4)), ahead_s), protocol=2))
        written = BEGAN_NS + 41 * _SECOND + ahead_s * _SECOND + 900_000_000
        os.utime(tmp_path / f"rank_{rank}", ns=(written, written))
    found = read_artifacts(tmp_path, lambda _done, _total: None)
    assert diagnose(found.capture, min_wait_s=found.min_wait_s).verdict.kind == "healthy"
