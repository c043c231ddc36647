"""One rank leaves through its own health check (``os._exit(3)``); the others rebuild the group and wait for it.

The survivors get Gloo's "connection closed", catch it as their home-made fault tolerance wants it, and go back to
``init_process_group`` with the full world size. Started by a launcher that does not restart anybody.
"""

import os
import threading
import time

import torch
import torch.distributed as dist


class HealthCheck(threading.Thread):
    """Ends the process when its free memory, as this rank measures it, is below what the policy asks for."""

    def __init__(self, rank: int) -> None:
        super().__init__(daemon=True)
        self.rank = rank

    def run(self) -> None:
        """Measure once a second."""
        for measurement in range(1000):
            time.sleep(1.0)
            if self.rank == 0 and measurement >= 2:
                print(f"[rank {self.rank}] health check failed, leaving", flush=True)
                os._exit(3)


def join(attempt: int) -> None:
    """Build the process group of this attempt."""
    base = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    dist.init_process_group(
        "gloo",
        store=dist.PrefixStore(f"attempt-{attempt}", base),
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )


def train(attempt: int) -> None:
    """Average a weight over the ranks, for as long as all are there."""
    join(attempt)
    weight = torch.ones(32)
    for _ in range(200):
        time.sleep(0.05)
        dist.all_reduce(weight)
        weight /= dist.get_world_size()


def main() -> None:
    """Train, and start over when a peer is lost."""
    torch.set_num_threads(1)
    HealthCheck(int(os.environ["RANK"])).start()
    for attempt in range(5):
        try:
            train(attempt)
            break
        except RuntimeError as error:
            print(f"[rank {os.environ['RANK']}] lost a peer: {str(error)[:60]}", flush=True)
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
