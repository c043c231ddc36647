"""The configuration is wrong and every rank says so, in the same words, after a few steps."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

CONFIG = {"steps": 20, "warmup": 10, "milestones": [5, 10, 15]}


def learning_rate(step: int) -> float:
    """Warm-up, then decay."""
    if step < CONFIG["warmup"]:
        return 0.01 * (step + 1) / CONFIG["warmup"]
    return 0.01 * CONFIG["decay"] ** sum(step >= milestone for milestone in CONFIG["milestones"])


def main() -> None:
    """Train until the decay is needed."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(CONFIG["steps"]):
        optimizer.param_groups[0]["lr"] = learning_rate(step)
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        print(f"[{dist.get_rank()}] step {step}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
