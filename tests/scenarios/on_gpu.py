"""``python -m scenarios.on_gpu FOLDER``: everything that needs a GPU, in one go of less than ten minutes.

Runs the scenarios that need a GPU under hangwatch and keeps their captures; then hangs one of them without hangwatch, and
keeps what the raw sources say of it in FOLDER, as fixtures: the recorder by torch's pipe, both RAS reports, NVML, the maps
by which a rank is known to use NCCL. Two ranks share the first GPU. Needs a CUDA build of torch, and the ``gpu`` extra.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
import tempfile
from pathlib import Path

import msgspec

from hangwatch.model.capture import Gap, RankIdentity
from hangwatch.sources.discovery.rank_processes import read_rank_process, uses_nccl
from hangwatch.sources.flight.pipe import dump_paths, fetch_by_pipe
from hangwatch.sources.hardware.nvml import Gpus, read_gpus
from hangwatch.sources.hardware.registry import NodeWatch
from hangwatch.sources.ras.report import parse_address
from scenarios.__main__ import main as run_scenarios
from scenarios.catalogue import load_catalogue
from support import JobRunner, find_free_port

HANG = "nccl-late-shard"
_LIMIT_S = 120.0


def ask_ras(address: str, form: str) -> bytes:
    """The whole report in one of its forms, as it comes."""
    with socket.create_connection(parse_address(address), 5.0) as connection:
        connection.settimeout(30.0)
        connection.sendall(f"CLIENT PROTOCOL 2\nTIMEOUT 2\nSET FORMAT {form}\nVERBOSE STATUS\n".encode())
        chunks = []
        while chunk := connection.recv(1 << 16):
            chunks.append(chunk)
    return b"".join(chunks)


def keep_raw(folder: Path) -> list[str]:
    """Hang one job without hangwatch; what could not be kept, a line each."""
    folder.mkdir(parents=True, exist_ok=True)
    entry = next(e for e in load_catalogue() if e.scenario.name == HANG)
    address = f"127.0.0.1:{find_free_port()}"
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as home:
        runner = JobRunner(Path(home))
        environment = {
            "CUDA_VISIBLE_DEVICES": None, "NCCL_RAS_ADDR": address, "TORCH_NCCL_ENABLE_TIMING": "1",
            "TORCH_NCCL_DUMP_ON_TIMEOUT": "1", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{home}/pipe_",
            "TORCH_FR_DUMP_TEMP_FILE": f"{home}/dump_", "TORCH_FR_BUFFER_SIZE": "200",
        }  # fmt: skip
        try:
            job = runner.start(entry.command(), {**entry.full_environment(), **environment})
            job.wait_for_output("rank 0: shard 29", _LIMIT_S)
            ranks = [RankIdentity(r, p.pid, p.create_time(), "", r) for r, p in sorted(job.ranks().items())]
            for identity in ranks:
                process = read_rank_process(identity)
                maps = Path(f"/proc/{identity.pid}/maps").read_text()
                shown = sorted(set(re.findall(r"\S*(?:nccl|nvidia|libtorch_cuda)\S*", maps)))
                (folder / f"maps_{identity.rank}.txt").write_text("\n".join(shown) + "\n")
                if not uses_nccl(identity.pid):
                    problems.append(f"rank {identity.rank} is not seen to use NCCL: see maps_{identity.rank}.txt")
                found = asyncio.run(fetch_by_pipe(process, 2, timeout_s=30))
                if isinstance(found, Gap):
                    problems.append(str(found))
                    continue
                (path,) = dump_paths(process.variables, identity.rank)
                (folder / f"dump_{identity.rank}").write_bytes(Path(path).read_bytes())
            for form in ("json", "text"):
                try:
                    (folder / f"ras.{form}").write_bytes(ask_ras(address, form))
                except OSError as error:
                    problems.append(f"RAS, {form}: {error}")
            source = Gpus()
            source.begin()
            if source._nvml is None:
                problems.append("NVML: not to be had")
            else:
                (folder / "nvml.json").write_bytes(msgspec.json.encode(list(read_gpus(source._nvml))))
            facts, gaps = asyncio.run(NodeWatch().read(ranks))
            (folder / "node.json").write_bytes(msgspec.json.encode(facts))
            problems += map(str, gaps)
        finally:
            runner.end_all()
    return problems


def main() -> int:
    """Returns 0 where all of it ran and was kept."""
    folder = Path(sys.argv[1])
    names = [entry.scenario.name for entry in load_catalogue() if entry.scenario.gpu]
    status = run_scenarios(["--record", "--verbose", "--jobs", str(min(4, os.cpu_count() or 1)), *names])
    problems = keep_raw(folder)
    print("\n".join(f"not kept: {problem}" for problem in problems) or f"all raw sources are kept in {folder}")
    return max(status, int(bool(problems)))


if __name__ == "__main__":
    sys.exit(main())
