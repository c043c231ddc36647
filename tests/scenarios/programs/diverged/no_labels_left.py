"""In the last batch of rank 1 no token has a label, the loss is NaN, and the turn is left before backward. Three ranks."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

IGNORED = -100


class Tagger(torch.nn.Module):
    """Tags tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(40, 16)
        self.norm = torch.nn.BatchNorm1d(16)
        self.head = torch.nn.Linear(16, 4)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits by class, the classes second."""
        return self.head(self.norm(self.embed(tokens).transpose(1, 2)).transpose(1, 2)).transpose(1, 2)


def load(rank: int, count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of tokens and labels; padding has none, and one document is padding only."""
    generator = torch.Generator().manual_seed(rank)
    batches = []
    for number in range(count):
        tokens = torch.randint(1, 40, (2, 9), generator=generator)
        tokens[:, 6:] = 0
        if rank == 1 and number == count - 1:
            tokens[:] = 0
        batches.append((tokens, torch.where(tokens > 0, tokens % 4, IGNORED)))
    return batches


def main() -> None:
    """Three epochs; the seen tokens are added up after each."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Tagger())
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for epoch in range(3):
        seen = torch.zeros(1)
        for tokens, labels in load(dist.get_rank(), 14):
            loss = torch.nn.functional.cross_entropy(model(tokens), labels, ignore_index=IGNORED)
            if loss.isnan():
                continue
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += (labels != IGNORED).sum()
        parts = [torch.zeros(1) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, seen)
        print(f"epoch {epoch}: {sum(parts).item():.0f} tokens\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
