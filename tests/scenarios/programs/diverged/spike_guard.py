"""ZeroRedundancyOptimizer: a rank that sees a spike in its loss leaves out the step, in which the new weights are broadcast."""

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel


class Guard:
    """Follows the mean loss and finds what is far above it."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.mean: float | None = None

    def accepts(self, loss: float) -> bool:
        """Whether the loss is an ordinary one."""
        if self.mean is not None and loss > self.factor * self.mean:
            return False
        self.mean = loss if self.mean is None else 0.9 * self.mean + 0.1 * loss
        return True


def main() -> None:
    """Forty steps. In the data of rank 2 there is an outlier."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    net = torch.nn.Sequential(*(torch.nn.Linear(24, 24) for _ in range(4)))
    model = DistributedDataParallel(net)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-3)
    data = torch.randn(40, 8, 24)
    if rank == 2:
        data[17] *= 100
    guard = Guard(factor=20)
    for step, batch in enumerate(data):
        optimizer.zero_grad()
        loss = (model(batch) - batch).square().mean()
        loss.backward()
        if guard.accepts(loss.item()):
            optimizer.step()
        else:
            print(f"[{rank}] step {step}: loss {loss.item():.1f}, no update\n", end="", flush=True)
        if step % 5 == 0:
            print(f"[{rank}] step {step}: loss {loss.item():.3f}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
