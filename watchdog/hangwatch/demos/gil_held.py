"""A rank calls native code that never returns and holds the GIL.

No other thread of that process can run Python. ``ctypes.PyDLL`` calls hold the GIL; it simulates a native extension
with a bug. Run by ``torchrun --nproc-per-node 2``.
"""

import ctypes

import torch
import torch.distributed as dist


def say(rank: int, text: str) -> None:
    """Print one line in one piece (Python under torchrun is unbuffered)."""
    print(f"[rank {rank}] {text}\n", end="", flush=True)


def encode(rank: int, step: int) -> torch.Tensor:
    """Prepare a batch with the native library; on rank 1 it gets stuck at the sixth step."""
    native = ctypes.PyDLL(None)
    native.sleep(36_000 if rank == 1 and step == 6 else 0)
    return torch.randn(16)


def main() -> None:
    """Train 20 steps."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(1, 21):
        batch = encode(rank, step)
        dist.all_reduce(batch)
        say(rank, f"step {step}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
