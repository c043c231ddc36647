"""``python -m scenarios.on_gpu FOLDER``: everything that needs a GPU, in one go of less than ten minutes.

Runs the scenarios that need a GPU under hangwatch and keeps their captures and ``results.json``; then hangs one of them
without hangwatch, and keeps what the raw sources say of it, as fixtures: the recorder by torch's pipe, both RAS reports,
NVML, the maps by which a rank is known to use NCCL. Two ranks share the first GPU. Needs a CUDA build of torch, and the
``gpu`` extra. ``--all`` runs those of the simulated device too, all of whose ranks then share the first GPU. With
``--simulated`` all of it runs over the simulated device, so that it does not fail on a GPU for a reason that has nothing to do
with one.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from corpus.catalogue import load_catalogue, unpack
from corpus.entries import Entry
from hangwatch.analysis.patience import STEP_S
from hangwatch.hardware.sources.nvml import Gpus, read_gpus
from hangwatch.hardware.sources.ras.report import parse_address
from hangwatch.hardware.sources.registry import NodeWatch
from hangwatch.model.capture import Gap, RankIdentity
from hangwatch.model.collectives import FlightRecord, in_flight
from hangwatch.sources.discovery.rank_processes import RankProcess, read_rank_process, uses_nccl
from hangwatch.sources.flight.pipe import dump_paths, fetch_by_pipe
from scenarios.__main__ import run_and_judge
from scenarios.judging import Judgement
from scenarios.launching import HERE, command, environment_of
from scenarios.running import device_environment, missing_need
from support import JobRunner, find_free_port

HANG = "nccl-late-shard"
_LIMIT_S = 120.0
#: By what is in it all ranks share the first GPU.
_FIRST_GPU = HERE / "first_gpu"
#: What answers on a GPU alone, by how its problems begin.
_NOT_SIMULATED = ("maps_", "RAS", "NVML")


def ask_ras(address: str, form: str) -> bytes:
    """The whole report in one of its forms, as it comes."""
    with socket.create_connection(parse_address(address), 5.0) as connection:
        connection.settimeout(30.0)
        connection.sendall(f"CLIENT PROTOCOL 2\nTIMEOUT 2\nSET FORMAT {form}\nVERBOSE STATUS\n".encode())
        chunks = []
        while chunk := connection.recv(1 << 16):
            chunks.append(chunk)
    return b"".join(chunks)


async def _fetch(process: RankProcess) -> FlightRecord | Gap:
    return await fetch_by_pipe(process, 2, timeout_s=30)


async def _fetch_hung(process: RankProcess) -> FlightRecord | Gap:
    """What the recorder holds once ``diagnose`` takes an operation for a wait; what it held last, where that takes too long."""
    deadline = time.monotonic() + _LIMIT_S
    while True:
        found = await _fetch(process)
        if isinstance(found, Gap) or time.monotonic() >= deadline:
            return found
        if any(found.at_ns - o.created_ns >= STEP_S * 1e9 for o in in_flight(found.operations)):
            return found


def keep_raw(entry: Entry, folder: Path) -> list[str]:
    """Hang one job without hangwatch; what could not be kept, a line each."""
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
            added = {**environment_of(entry), **device_environment(entry, Path(home)), **environment}
            job = runner.start(command(entry, unpack(entry.family, Path(home) / "train")), added)
            job.wait_for_output("rank 0: shard 29", _LIMIT_S)
            ranks = [RankIdentity(r, p.pid, p.create_time(), "", r) for r, p in sorted(job.ranks().items())]
            for identity in ranks:
                process = read_rank_process(identity)
                maps = Path(f"/proc/{identity.pid}/maps").read_text()
                shown = sorted(set(re.findall(r"\S*(?:nccl|nvidia|libtorch_cuda)\S*", maps)))
                (folder / f"maps_{identity.rank}.txt").write_text("\n".join(shown) + "\n")
                if not uses_nccl(identity.pid):
                    problems.append(f"maps_{identity.rank}.txt: the rank is not seen to use NCCL on a GPU")
                found = asyncio.run(_fetch_hung(process) if identity.rank == 0 else _fetch(process))
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


def run_scenarios(entries: Sequence[Entry], folder: Path, minutes: float) -> list[Judgement]:
    """Run them under hangwatch and judge them; ``results.json`` and the captures of the hangs are kept in the folder.

    After so many minutes no more are begun.
    """
    rows: list[Judgement] = []
    at_once = min(4, os.cpu_count() or 1)
    until = time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory() as home:
        for first in range(0, len(entries), 2 * at_once):
            if time.monotonic() >= until:
                print(f"{len(entries) - first} scenarios were not begun within {minutes:g} minutes", flush=True)
                break
            some = entries[first : first + 2 * at_once]
            for row in run_and_judge(some, Path(home), at_once=at_once, kept=folder / "captures", verbose=True):
                rows.append(row)
                (folder / "results.json").write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n")
    return rows


def as_simulated(entry: Entry) -> Entry:
    """The same scenario on NCCL over the simulated device."""
    return msgspec.structs.replace(entry, scenario=msgspec.structs.replace(entry.scenario, gpu=False, simulated=True))


def on_first_gpu(entry: Entry) -> Entry:
    """The same scenario on NCCL over the first GPU, which its ranks share."""
    kept = {name: value for name, value in entry.scenario.environment.items() if name != "SIMULATED_SYNC"}
    added = {"PYTHONPATH": str(_FIRST_GPU), "NCCL_RAS_ADDR": f"127.0.0.1:{find_free_port()}"}
    scenario = msgspec.structs.replace(entry.scenario, gpu=True, simulated=False, environment={**kept, **added})
    return msgspec.structs.replace(entry, scenario=scenario)


def runs_on_first_gpu(entry: Entry) -> bool:
    """Whether it runs on the simulated device without a switch of it, and by a launcher that takes one GPU for many ranks."""
    scenario = entry.scenario
    switches = [name for name in scenario.environment if name.startswith("SIMULATED_") and name != "SIMULATED_SYNC"]
    # That of DeepSpeed counts GPUs.
    return scenario.simulated and not switches and scenario.launcher != "deepspeed"


def main() -> int:
    """Returns 0 where all of it ran, was judged right and was kept; 2 where nothing could be run."""
    parser = argparse.ArgumentParser(description="Everything that needs a GPU, in one go of less than ten minutes.")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where all that comes of it is kept")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of these scenarios alone (all that need a GPU)")
    parser.add_argument("--minutes", type=float, default=8.0, help="begin no scenario after so many (8)")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--all", action="store_true", help="those of the simulated device too, on the first GPU")
    where.add_argument(
        "--simulated",
        action="store_true",
        help="on the simulated device of `make nccl`: that this command works is seen",
    )
    options = parser.parse_intermixed_args()  # names may follow an option
    catalogue = load_catalogue()
    found = {entry.scenario.name: entry for entry in catalogue if entry.scenario.gpu}
    if options.all:
        moved = [on_first_gpu(entry) for entry in catalogue if runs_on_first_gpu(entry)]
        found |= {entry.scenario.name: entry for entry in moved if missing_need(entry) is None}
    if unknown := set(options.names) - found.keys():
        parser.error(f"no scenario that needs a GPU: {', '.join(sorted(unknown))}")
    known = {name: as_simulated(entry) if options.simulated else entry for name, entry in found.items()}
    entries = [known[name] for name in options.names or known]
    if why := missing_need(entries[0]):
        print(f"on_gpu: {entries[0].scenario.name} {why}", file=sys.stderr)
        return 2
    options.folder.mkdir(parents=True, exist_ok=True)
    rows = run_scenarios(entries, options.folder, options.minutes)
    problems = keep_raw(known[HANG], options.folder)
    # The simulated device has no driver, and its NCCL no RAS: that these were asked is all that is seen.
    failed = [problem for problem in problems if not (options.simulated and problem.startswith(_NOT_SIMULATED))]
    print("\n".join(f"not kept: {problem}" for problem in problems) or f"all raw sources are kept in {options.folder}")
    return int(bool(failed) or not all(row.good for row in rows))


if __name__ == "__main__":
    sys.exit(main())
