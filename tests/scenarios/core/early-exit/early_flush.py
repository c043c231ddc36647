"""One rank stops early by its own loss and exits; a hook of ``atexit`` waits for rows that nobody takes any more.

Early stopping must be decided together, and here every rank decides for itself. Run by
``torchrun --nproc-per-node 3``.
"""

import atexit
import queue
import sys
import threading

import torch
import torch.distributed as dist

ROWS: "queue.Queue[str]" = queue.Queue()


def ship_rows() -> None:
    """Send rows on; gives up for good after the first few, as the server wants no more of this client."""
    for _ in range(5):
        ROWS.get()
        ROWS.task_done()


def flush_rows() -> None:
    """Let no row get lost."""
    ROWS.join()


def main() -> None:
    """Estimate a mean until it is good enough."""
    torch.set_num_threads(1)
    threading.Thread(target=ship_rows, daemon=True).start()
    atexit.register(flush_rows)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    generator = torch.Generator().manual_seed(rank)
    estimate = torch.tensor(0.0)
    for step in range(1, 200):
        sample = torch.randn(1, generator=generator).squeeze() * (0.01 if rank == 2 else 3.0) + 1.0
        total = sample.clone()
        dist.all_reduce(total)
        estimate += (total / dist.get_world_size() - estimate) / step
        spread = (sample - 1.0).abs().item()
        ROWS.put(f"{step},{estimate.item():.4f},{spread:.4f}")
        if step >= 12 and spread < 0.1 and rank == 2:
            print(f"[rank {rank}] converged after {step} steps", flush=True)
            sys.exit(0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
