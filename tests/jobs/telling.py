"""A training that tells of itself, and then hangs: rank 0 alone averages its loss, the others go on to the barrier.

Run by ``torchrun --nproc-per-node 3``. Its arguments are a log, into which it writes the line that DeepSpeed's engine writes, and
a port at which rank 0 says what a serving engine would say of its requests.
"""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server
from torch.nn.parallel import DistributedDataParallel

import hangwatch

STEPS, STEP_S = 24, 0.25


def serve(port: int) -> Counter:
    """Metrics by vLLM's names, of an engine with requests; the counter of its tokens."""
    registry = CollectorRegistry()
    for name, requests in (("running", 1), ("waiting", 2)):
        Gauge(f"vllm:num_requests_{name}", "Requests.", ("engine",), registry=registry).labels("0").set(requests)
    start_http_server(port, "127.0.0.1", registry)
    return Counter("vllm:generation_tokens", "Tokens.", ("engine",), registry=registry)


def main() -> None:
    """Train, tell each step, and hang at the last."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    tokens = serve(int(sys.argv[2])) if rank == 0 else None
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, STEPS + 1):
        inputs = torch.randn(8, 16)
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        hangwatch.report(step=step, loss=loss.item(), lr=0.01, grad_norm=norm.item())
        if tokens is not None:
            tokens.labels("0").inc()
            with Path(sys.argv[1]).open("a") as log:
                print(f"[Rank 0] step={step}, skipped=1, lr=[0.01], mom=[0.9]", file=log)
        time.sleep(STEP_S)
        if step == STEPS:
            if rank == 0:
                dist.all_reduce(loss.detach())
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
