"""Avalanche run-out with one expert per problem type; the experts' weights are spread over the processes."""
import torch
import torch.distributed as dist
from torch import nn

SECTORS = [("Lower bowl", 1400.0, 2600.0), ("Summit", 2100.0, 3200.0), ("East ridge", 1500.0, 2800.0)]
DRY = ("slab", "gliding", "loose")
WIDTH, HIDDEN = 10, 36


class SpreadLinear(nn.Module):
    """Rows of the weight are spread over all processes and put together for each use."""

    def __init__(self, width: int, out: int, world: int, rank: int, seed: int):
        super().__init__()
        g = torch.Generator().manual_seed(seed)
        full = torch.randn(out, width, generator=g) / width**0.5
        self.rank, self.world = rank, world
        self.rows = nn.Parameter(full.chunk(world)[rank].clone())

    def forward(self, x):
        parts = [torch.empty_like(self.rows) for _ in range(self.world)]
        dist.all_gather(parts, self.rows.detach())
        parts[self.rank] = self.rows
        return x @ torch.cat(parts).T


class RunOut(nn.Module):
    def __init__(self, world: int, rank: int):
        super().__init__()
        kinds = ("slab", "wet", "gliding", "loose")
        self.experts = nn.ModuleDict({k: SpreadLinear(WIDTH, HIDDEN, world, rank, i) for i, k in enumerate(kinds)})
        self.head = nn.Linear(HIDDEN, 1)

    def forward(self, x, kinds: list[str]):
        mixed = torch.zeros(len(x), HIDDEN)
        for name, expert in self.experts.items():
            chosen = [i for i, kind in enumerate(kinds) if kind == name]
            if not chosen:
                continue
            index = torch.tensor(chosen)
            mixed = mixed.index_add(0, index, torch.relu(expert(x[index])))
        return self.head(mixed).squeeze(1)


def observe(low: float, high: float, hour: int, g: torch.Generator, count: int = 24):
    """Starting zones from the valley side upwards; below the freezing level the snow is wet."""
    freezing = 2300.0 - 6.0 * hour
    altitude = torch.linspace(low, high, count)
    kinds = ["wet" if float(a) < freezing else DRY[i % 3] for i, a in enumerate(altitude)]
    terrain = torch.randn(count, 200, 200, generator=g)
    for _ in range(4):
        terrain = torch.tanh(torch.bmm(terrain, terrain) / 200)
    x = torch.cat([terrain[:, 0, : WIDTH - 1], (altitude / 3000).unsqueeze(1)], dim=1)
    return x, kinds, x.sum(dim=1)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    name, low, high = SECTORS[rank]
    torch.manual_seed(9)
    model = RunOut(world, rank)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    g = torch.Generator().manual_seed(rank)
    for hour in range(100):
        x, kinds, distance = observe(low, high, hour, g)
        loss = nn.functional.mse_loss(model(x, kinds), distance)
        optimizer.zero_grad()
        loss.backward()
        for p in model.head.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        optimizer.step()
        if hour % 10 == 0:
            print(f"{name} hour {hour}: {loss.item():.4f}, wet {kinds.count('wet')}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
