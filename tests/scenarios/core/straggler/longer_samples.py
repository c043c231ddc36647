"""One rank's samples are longer, so it comes last in every step, by more and more; nothing hangs.

Run by ``torchrun --nproc-per-node 3``.
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def encode(length_s: float) -> torch.Tensor:
    """Encode a sample; takes as long as the sample is."""
    state = torch.randn(48, 48)
    until = time.monotonic() + length_s
    while time.monotonic() < until:
        state = torch.tanh(state @ state.t() / 48)
    return state


def main() -> None:
    """Ten steps through samples sorted by length; the speaker on rank 1 talks a lot."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(48, 1))
    for step in range(10):
        sample = encode((0.6 + 0.45 * step) if rank == 1 else 0.05)
        model(sample).mean().backward()
        print(f"[rank {rank}] step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
