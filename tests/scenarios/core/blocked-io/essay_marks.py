"""Two learners and a marker, which marks essays for them by torch.distributed.rpc; the learners share a group of their own."""

import argparse
import os
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.rpc as rpc

NAMES = ["learner0", "learner1", "marker"]
#: What a learner lends to those who ask for it.
syllabus = threading.Lock()


class Marker:
    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.ledger = threading.Lock()

    def rubric(self) -> str:
        path = Path(tempfile.gettempdir()) / "rubric"
        os.mkfifo(path)
        return path.read_text()

    def mark(self, essays: torch.Tensor, step: int) -> torch.Tensor:
        if step == 4 and self.fault == "rubric":
            self.rubric()
        if step == 4 and self.fault == "ledger":
            self.ledger.acquire()
        if step == 4 and self.fault == "long":
            time.sleep(4.0)
        if step == 4 and self.fault == "syllabus":
            rpc.rpc_sync("learner0", read_syllabus)
        with self.ledger:
            return essays.mean(1)


marker: Marker | None = None


def read_syllabus() -> int:
    with syllabus:
        return 7


def mark_essays(essays: torch.Tensor, step: int) -> torch.Tensor:
    return marker.mark(essays, step)


def ask(how: str, essays: torch.Tensor, step: int) -> torch.Tensor:
    if how == "sync":
        with syllabus:
            return rpc.rpc_sync("marker", mark_essays, args=(essays, step))
    if how == "async":
        reply = rpc.rpc_async("marker", mark_essays, args=(essays, step))
        essays.sum()
        return reply.wait()
    kept = rpc.remote("marker", mark_essays, args=(essays, step))
    return kept.to_here()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--marker", default="well")
    parser.add_argument("--ask", default="sync")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    learners = dist.new_group([0, 1])
    global marker
    marker = Marker(options.marker)
    rpc.init_rpc(
        NAMES[rank], rank=rank, world_size=3, rpc_backend_options=rpc.TensorPipeRpcBackendOptions(rpc_timeout=1800)
    )
    if rank < 2:
        weight = torch.zeros(8)
        for step in range(8):
            essays = torch.randn(16, 8)
            marks = ask(options.ask, essays, step) if rank == 0 else essays.mean(1)
            gradient = marks @ essays
            dist.all_reduce(gradient, group=learners)
            weight += 0.01 * gradient
            print(f"[rank {rank}] step {step}", flush=True)
    rpc.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
