"""DDP over scraped pages; a page without words counts for nothing, and neither does the step it came in."""

from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@dataclass
class State:
    """Where training is."""

    step: int = 0
    tokens: int = 0
    history: list[float] = field(default_factory=list)


class Pages:
    """Pages of one rank, as lists of word numbers."""

    def __init__(self, rank: int, world: int) -> None:
        generator = torch.Generator().manual_seed(5)
        lengths = torch.randint(2, 9, (world * 60,), generator=generator).tolist()
        lengths[60 * world // 4 + 3] = 0  # a redirect
        self.lengths = lengths[rank::world]

    def __iter__(self):
        for length in self.lengths:
            yield torch.randint(1, 30, (length,))


def evaluate(model: nn.Module, state: State) -> None:
    """The mean score of a fixed page."""
    with torch.no_grad():
        score = model.module(torch.arange(1, 9)[None]).mean()
    scores = [torch.zeros(()) for _ in range(dist.get_world_size())]
    dist.all_gather(scores, score)
    state.history.append(torch.stack(scores).mean().item())


def main() -> None:
    """One pass."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.EmbeddingBag(30, 8), nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    state = State()
    for page in Pages(rank, dist.get_world_size()):
        words = page if len(page) else torch.zeros(1, dtype=torch.long)
        loss = model(words[None]).square().mean() * (1.0 if len(page) else 0.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if len(page):
            state.step += 1
            state.tokens += len(page)
        if state.step % 20 == 0:
            evaluate(model, state)
    print(f"[{rank}] {state.step} steps, {state.tokens} tokens", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
