"""The evaluation of one rank is handed to a thread that waits for an event nobody sets; main waits for its result.

The event is set by whoever finds a new best model, and one rank never finds one. Started by a launcher that does not
supervise.
"""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist


class Evaluator:
    """Scores the best model so far, in the background."""

    def __init__(self) -> None:
        self.found = threading.Event()
        self.best = torch.zeros(6)

    def offer(self, weights: torch.Tensor, loss: float, limit: float) -> None:
        """Keep the weights if they are good."""
        if loss < limit:
            self.best = weights.clone()
            self.found.set()

    def score(self) -> float:
        """The score of the best model, once there is one."""
        self.found.wait()
        return self.best.norm().item()


def main() -> None:
    """A few rounds; the data of rank 1 is so noisy that no loss is below the limit."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    evaluator = Evaluator()
    weights = torch.ones(6)
    with ThreadPoolExecutor(1, thread_name_prefix="evaluation") as pool:
        result = pool.submit(evaluator.score)
        for _ in range(20):
            update = torch.rand(6)
            dist.all_reduce(update)
            weights = 0.9 * weights + 0.1 * update
            evaluator.offer(weights, loss=1.0 if rank == 1 else 0.1, limit=0.5)
        score = torch.tensor(result.result())
    dist.all_reduce(score)
    print(f"[rank {rank}] score {score.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
