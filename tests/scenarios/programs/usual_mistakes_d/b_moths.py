"""Species of moths at a light trap. A step that fails is counted, and training goes on."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

SPECIES = 7


class Trap:
    """Pictures of one trap, in batches."""

    def __init__(self, number: int) -> None:
        """Make the pictures of trap `number`."""
        generator = torch.Generator().manual_seed(number)
        self.pictures = list(torch.randn(40, 6, 64, generator=generator))
        self.labels = list(torch.randint(0, SPECIES, (40, 6), generator=generator))
        if number == 3:
            self.labels[22] = self.labels[22].clone()
            self.labels[22][4] = SPECIES  # "unknown" in the old field book

    def __iter__(self):
        """Batch by batch."""
        return zip(self.pictures, self.labels, strict=True)


class Training:
    """Model, optimizer and what went wrong."""

    def __init__(self) -> None:
        """Build everything."""
        torch.manual_seed(0)
        self.model = DDP(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, SPECIES)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.failed = 0

    def step(self, pictures: torch.Tensor, labels: torch.Tensor) -> None:
        """Forward, backward, update."""
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(pictures), labels)
        loss.backward()
        self.optimizer.step()

    def epoch(self, trap: Trap) -> None:
        """All batches of a trap."""
        for pictures, labels in trap:
            try:
                self.step(pictures, labels)
            except (RuntimeError, IndexError) as error:
                self.failed += 1
                print(f"rank {dist.get_rank()}: step failed: {error}", flush=True)


def main() -> None:
    """Four epochs."""
    dist.init_process_group("gloo")
    training = Training()
    trap = Trap(dist.get_rank())
    for number in range(4):
        training.epoch(trap)
        dist.barrier()
        if dist.get_rank() == 0:
            print(f"epoch {number} done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
