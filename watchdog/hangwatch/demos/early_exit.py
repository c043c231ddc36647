"""A rank leaves training early without an error, and a non-daemon thread keeps its process alive.

The thread simulates the uploader of an experiment tracker. Run by ``torchrun --nproc-per-node 2``.
"""

import queue
import threading

import torch
import torch.distributed as dist


def say(rank: int, text: str) -> None:
    """Print one line in one piece (Python under torchrun is unbuffered)."""
    print(f"[rank {rank}] {text}\n", end="", flush=True)


def upload(records: "queue.Queue[str]") -> None:
    """Send records to the tracker forever."""
    while True:
        records.get()


def main() -> None:
    """Train 20 steps, but stop as soon as this rank's loss is small."""
    torch.set_num_threads(1)
    records: queue.Queue[str] = queue.Queue()
    threading.Thread(target=upload, args=(records,), name="tracker-upload").start()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(1, 21):
        loss = torch.tensor(1.0 / step if rank == 1 else 1.0)
        if loss.item() < 0.18:
            say(rank, f"loss {loss.item():.2f} is small enough, done")
            return
        dist.all_reduce(loss)
        records.put(f"step {step}: {loss.item()}")
        say(rank, f"step {step}: loss {loss.item():.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
