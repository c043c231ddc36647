"""Rank 0 gathers its statistics alone. They meet the others' token count, of the same bytes, and both sides go on with nonsense.

Only later, with every rank one operation off, does anyone wait.
"""

import torch
import torch.distributed as dist


class Run:
    """Data-parallel training with its own gradient averaging."""

    def __init__(self) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(self.rank)
        self.model = torch.nn.Linear(8, 1, bias=False)
        self.tokens = 0

    def count_tokens(self, inputs: torch.Tensor) -> None:
        """Add up what all ranks have seen."""
        counts = [torch.zeros(1, dtype=torch.long) for _ in range(self.world)]
        dist.all_gather(counts, torch.tensor([inputs.numel()]))
        self.tokens += int(sum(counts))

    def step(self) -> float:
        """One update."""
        inputs = torch.randn(4, 8)
        self.count_tokens(inputs)
        loss = (self.model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        self.model.zero_grad()
        loss.backward()
        weight = self.model.weight
        dist.all_reduce(weight.grad)
        weight.data -= 0.01 * weight.grad / self.world
        return loss.item()

    def log(self, step: int, loss: float) -> None:
        """The mean loss, on rank 0's screen."""
        if self.rank == 0:
            stats = [torch.zeros(2) for _ in range(self.world)]
            dist.all_gather(stats, torch.tensor([loss, self.model.weight.norm().item()]))
            print(f"step {step}: losses and norms {stats}, {self.tokens} tokens", flush=True)


def main() -> None:
    """Fifty steps."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    run = Run()
    for step in range(1, 51):
        loss = run.step()
        if step % 10 == 0:
            run.log(step, loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
