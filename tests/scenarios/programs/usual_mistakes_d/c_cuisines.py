"""Cuisines of recipes by a mixture of experts; each expert is sharded by itself with FSDP2."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

WIDTH, EXPERTS, WORDS, CUISINES = 32, 4, 200, 5


class Experts(nn.Module):
    """Each token goes to the expert its router likes best."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, WIDTH)) for _ in range(EXPERTS)
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Weighted by how much the router likes it."""
        weight, choice = self.router(tokens).softmax(dim=-1).max(dim=-1)
        result = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            mine = (choice == number).nonzero().squeeze(1)
            if len(mine):
                result = result.index_add(0, mine, expert(tokens[mine]) * weight[mine, None])
        return tokens + result


class RecipeModel(nn.Module):
    """Words, experts, the mean, a cuisine."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.mixture = Experts()
        self.head = nn.Linear(WIDTH, CUISINES)

    def forward(self, recipe: torch.Tensor) -> torch.Tensor:
        """For a batch of recipes of one length."""
        hidden = self.mixture(self.words(recipe).flatten(0, 1))
        return self.head(hidden.view(*recipe.shape, WIDTH).mean(dim=1))


def recipes(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Long ones at home; rank 2 has a page of drinks now and then, which are a few words long."""
    generator = torch.Generator().manual_seed(step * 100 + rank)
    short = rank == 2 and step % 12 == 11
    words = torch.randint(0, WORDS, (1, 2) if short else (16, 40), generator=generator)
    return words, words[:, 0] % CUISINES


def main() -> None:
    """A hundred steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(5)
    model = RecipeModel()
    for expert in model.mixture.experts:
        fully_shard(expert)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(100):
        words, cuisine = recipes(step, rank)
        loss = cross_entropy(model(words), cuisine)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and step % 10 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
