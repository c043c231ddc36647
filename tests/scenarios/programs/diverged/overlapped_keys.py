"""Keys are gathered while the step computes: started at its beginning, waited for at its end. Empty batches are left out."""

import torch
import torch.distributed as dist


def batches(rank: int) -> list[torch.Tensor]:
    """Pairs of images after filtering. In one of rank 2's batches nothing was left."""
    generator = torch.Generator().manual_seed(rank)
    sizes = [0 if (rank, number) == (2, 9) else 4 for number in range(24)]
    return [torch.randn(size, 12, generator=generator) for size in sizes]


class Contrast:
    """A small contrastive model with a queue of everybody's keys."""

    def __init__(self) -> None:
        self.world = dist.get_world_size()
        torch.manual_seed(0)
        self.encoder = torch.nn.Linear(12, 6)
        self.queue = torch.zeros(1, 6)
        self.optimizer = torch.optim.SGD(self.encoder.parameters(), 0.05)

    def update(self, images: torch.Tensor) -> float:
        """One local step with the keys of all ranks."""
        with torch.no_grad():
            keys = self.encoder(images)
        parts = [torch.zeros_like(keys) for _ in range(self.world)]
        handle = dist.all_gather(parts, keys, async_op=True)
        loss = -(self.encoder(images) @ self.queue.T).logsumexp(1).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        handle.wait()
        self.queue = torch.cat([self.queue, *parts])[-32:]
        return loss.item()

    def average(self) -> None:
        """Bring the ranks' weights together."""
        for parameter in self.encoder.parameters():
            dist.all_reduce(parameter.data)
            parameter.data /= self.world


def main() -> None:
    """One epoch of local steps, averaged every fourth."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = Contrast()
    for step, images in enumerate(batches(dist.get_rank()), 1):
        if len(images):
            print(f"step {step}: {model.update(images):.3f}\n", end="", flush=True)
        if step % 4 == 0:
            model.average()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
