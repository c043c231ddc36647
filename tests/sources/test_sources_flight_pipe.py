"""The recorder of a rank without the probe, asked through torch's pipe: in a process that does what torch's thread does."""

from __future__ import annotations

import asyncio
import os
import pickle
import time
from pathlib import Path

import psutil
import pytest

from hangwatch.model.capture import Gap, RankIdentity
from hangwatch.model.collectives import FlightRecord
from hangwatch.sources.discovery.rank_processes import RankProcess, parse_uid, read_rank_process
from hangwatch.sources.flight.pipe import dump_paths, fetch_by_pipe, find_version, pipe_path, ring
from hangwatch.sources.proc.files import parse_inner_pid
from nccl_dumps import nccl_dump, nccl_entry
from support import JobRunner

PROGRAM = Path(__file__).resolve().parent / "pipe_program.py"


def start(jobs: JobRunner, folder: Path, *, old_name: bool = False) -> RankProcess:
    """A process with a pipe and a recorder that has one operation in flight; an older dump is there already."""
    source = folder / "source"
    source.write_bytes(pickle.dumps(nccl_dump(nccl_entry(seq=8, state="scheduled")), protocol=2))
    (folder / "dump_3").write_bytes(pickle.dumps(nccl_dump(nccl_entry(seq=1)), protocol=2))
    name = "TORCH_NCCL_DEBUG_INFO_TEMP_FILE" if old_name else "TORCH_FR_DUMP_TEMP_FILE"
    variables = {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(folder / "pipe_"), name: str(folder / "dump_")}
    job = jobs.python(PROGRAM, str(folder / "pipe_3.pipe"), str(folder / "dump_3"), str(source), env=variables)
    job.wait_for_output("ready")
    return read_rank_process(RankIdentity(3, job.pid, psutil.Process(job.pid).create_time()))


@pytest.mark.parametrize("old_name", [False, True])
def test_the_rank_is_asked_and_its_fresh_dump_read(jobs: JobRunner, tmp_path: Path, old_name: bool) -> None:
    """By the names of its own environment; the dump of before is not taken, nor one that is only half there."""
    process = start(jobs, tmp_path, old_name=old_name)
    began_ns = time.time_ns()
    record = asyncio.run(fetch_by_pipe(process, 4, timeout_s=30))
    assert isinstance(record, FlightRecord)
    assert [(o.seq, o.completed, o.backend) for o in record.operations] == [(8, False, "nccl")]
    assert record.operations[0].group.ranks == (0, 1, 2, 3)
    assert record.at_ns > began_ns - 10**9


def test_what_cannot_be_asked_says_why(jobs: JobRunner, tmp_path: Path) -> None:
    """No pipe in the environment, no pipe on disk, nobody who reads it, and no file in time."""
    process = start(jobs, tmp_path)
    bare = RankProcess(process.identity, process.namespace_pid, {}, process.uid)
    lost = RankProcess(
        process.identity, process.namespace_pid, {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "/nowhere/"}, process.uid
    )
    deaf = tmp_path / "deaf"
    os.mkfifo(f"{deaf}3.pipe")
    unheard = RankProcess(process.identity, 1, {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(deaf)}, process.uid)
    astray = {**process.variables, "TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "elsewhere_")}
    silent = RankProcess(process.identity, 1, astray, process.uid)
    says = {}
    for name, asked in {"bare": bare, "lost": lost, "unheard": unheard, "silent": silent}.items():
        found = asyncio.run(fetch_by_pipe(asked, 4, timeout_s=0.3))
        assert isinstance(found, Gap)
        says[name] = f"{found.reason} {found.hint}"
    assert "TORCH_NCCL_DEBUG_INFO_PIPE_FILE" in says["bare"]
    assert "does not exist" in says["lost"]
    assert "nobody reads" in says["unheard"]
    assert "wrote no dump" in says["silent"]


def test_nothing_else_is_opened_in_a_folder_that_everybody_writes_to(jobs: JobRunner, tmp_path: Path) -> None:
    """Links, files in place of pipes, pipes in place of files, and ways out of the rank's file system are refused."""
    process = start(jobs, tmp_path)
    plain = tmp_path / "plain.pipe"
    plain.write_text("kept")
    link = tmp_path / "link.pipe"
    link.symlink_to(tmp_path / "pipe_3.pipe")
    for path in (plain, link, tmp_path / ".." / tmp_path.name / "pipe_3.pipe"):
        with pytest.raises(OSError, match=r"FIFO|symbolic|\.\."):
            ring(process, str(path))
    assert plain.read_text() == "kept"
    assert find_version(process, str(tmp_path / "pipe_3.pipe")) is None
    stranger = RankProcess(process.identity, 1, process.variables, 12345)
    with pytest.raises(OSError, match="own user"):
        ring(stranger, str(tmp_path / "pipe_3.pipe"))


def test_names_of_all_versions() -> None:
    """What the environment says, each version's default, and a name that is read anew at each dump."""
    assert pipe_path({}, 1) is None
    assert pipe_path({"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "/tmp/p"}, 12) == "/tmp/p12.pipe"
    both = {"TORCH_FR_DUMP_TEMP_FILE": "/a/new_", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/a/old_"}
    assert dump_paths(both, 1) == ("/a/new_1",)
    assert dump_paths({**both, "TORCH_FR_DUMP_DYNAMIC_FILE_NAME": "1"}, 1) == ("/a/new_",)
    assert dump_paths({"HOME": "/h"}, 2) == (
        "/h/.cache/torch/comm_lib_trace_rank_2",
        "/h/.cache/torch/nccl_trace_rank_2",
        "/tmp/nccl_trace_rank_2",
    )


def test_the_pid_and_the_user_a_process_has_for_itself() -> None:
    """In a container, the innermost pid; files belong to the effective user."""
    status = b"Name:\tpython\nUid:\t1000\t1001\t1000\t1001\nNSpid:\t4711\t12\n"
    assert (parse_inner_pid(status), parse_uid(status)) == (12, 1001)
    assert (parse_inner_pid(b""), parse_uid(b"Uid:")) == (None, None)
