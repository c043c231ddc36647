"""What the sources of a real GPU said of a hung job: a NVIDIA H200, driver 580.159.04, NCCL 2.28.9, PyTorch 2.11.

Kept by ``scenarios.on_gpu`` of ``nccl-late-shard``, which hangs in its 31st all_reduce; only paths were replaced.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hangwatch.diagnosis.verdict import diagnose
from hangwatch.hardware.sources.nvml import GpuReading
from hangwatch.hardware.sources.ras.ras_json import parse_status_json
from hangwatch.hardware.sources.ras.ras_text import parse_status_text
from hangwatch.model.capture import Capture, Job, RankCapture, RankIdentity
from hangwatch.model.collectives import in_flight
from hangwatch.model.devices import NodeFacts
from hangwatch.sources.discovery import rank_processes
from hangwatch.sources.flight.pickles import load_pickle
from hangwatch.sources.flight.recorder import parse_flight

FOLDER = Path(__file__).parents[1] / "fixtures" / "gpu"
LAST = 31
ADDRESS = "127.0.0.1:28028"


def report(name: str) -> bytes:
    """A report without the three lines by which the server answers commands."""
    return (FOLDER / name).read_bytes().split(b"\n", 3)[3]


def test_both_reports_of_ras_are_read() -> None:
    """One communicator, of which rank 1 is an all_reduce behind: by JSON in counts, by text in a warning."""
    structured = parse_status_json(report("ras.json"), ADDRESS)
    (communicator,) = structured.communicators
    assert [(r.place, r.state, r.counts["AllReduce"]) for r in communicator.ranks] == [
        (0, "running", LAST), (1, "running", LAST - 1),
    ]  # fmt: skip
    said = parse_status_text(report("ras.text"), ADDRESS)
    assert (structured.nccl_version, said.nccl_version) == ("2.28.9", "2.28.9")
    assert [problem.kind for problem in said.problems] == ["mismatch"]


@pytest.mark.parametrize(("what", "pid", "error"), [("stopped", 454, None), ("killed", 531, "remote process error")])
def test_ranks_that_do_not_answer_nccl_are_read(what: str, pid: int, error: str | None) -> None:
    """Rank 1 was stopped, or killed while its launcher was stopped. What NCCL writes of such ranks is no JSON."""
    found = parse_status_json(report(f"ras_{what}.json"), ADDRESS)
    (communicator,) = found.communicators
    (there, missing) = communicator.ranks
    assert (there.place, there.state, there.error or None) == (0, "running", error)
    assert (missing.place, missing.pid, missing.state) == (1, pid, "unresponsive")
    assert (("192.0.2.2", pid),) in [problem.processes for problem in found.problems]


def test_a_rank_that_was_killed_is_read_in_text() -> None:
    """Its data is missing, and the other rank has an error."""
    said = parse_status_text(report("ras_killed.text"), ADDRESS)
    assert [problem.kind for problem in said.problems] == ["incomplete", "incomplete", "error"]


def test_the_recorder_by_pipe_names_the_rank_that_is_behind() -> None:
    """Rank 0 has the 31st enqueued, rank 1 has not called it."""
    records = {
        r: parse_flight(load_pickle((FOLDER / f"dump_{r}").read_bytes()), at_ns=0, source="pickle") for r in (0, 1)
    }
    assert [o.seq for o in in_flight(records[0].operations)] == [LAST]
    assert not in_flight(records[1].operations)
    ranks = tuple(
        RankCapture(RankIdentity(r, 1302 + r, 1.0), flight=f, progress=f.progress) for r, f in records.items()
    )
    verdict = diagnose(Capture(Job("job", 2), records[0].operations[-1].created_ns + 10**10, ranks)).verdict
    assert (verdict.kind, verdict.culprit_ranks, verdict.proven) == ("stall", (1,), False)


def test_nvml_says_which_ranks_use_the_gpu() -> None:
    """Fully used at a sixth of its power: kernels that wait."""
    (reading,) = msgspec.json.decode((FOLDER / "nvml.json").read_bytes(), type=list[GpuReading])
    (gpu,) = msgspec.json.decode((FOLDER / "node.json").read_bytes(), type=NodeFacts).gpus
    assert (reading.name, reading.utilization, gpu.ranks) == ("NVIDIA H200", 1.0, (0, 1))


def test_a_rank_on_a_gpu_has_the_device_and_nccl_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """By which ``uses_nccl`` knows it."""
    maps = (FOLDER / "maps_0.txt").read_bytes()
    assert b"/dev/nvidia" in maps
    assert b"libnccl" in maps
    monkeypatch.setattr(rank_processes, "read_whole", lambda *_: maps)
    assert rank_processes.uses_nccl(1302)
