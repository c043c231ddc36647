"""State of health of battery cells from partial charge curves; blocks sharded with fully_shard."""
import math

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        return x + self.down(nn.functional.silu(self.up(self.norm(x))))


class CellModel(nn.Module):
    def __init__(self, d=96, depth=3):
        super().__init__()
        self.embed = nn.Linear(2, d)
        self.blocks = nn.ModuleList(Block(d) for _ in range(depth))
        self.head = nn.Linear(d, 1)

    def forward(self, curves):
        h = self.embed(curves)
        for block in self.blocks:
            h = block(h)
        return self.head(h).mean(dim=(1, 2))


class PackedCurves:
    """Charge curves of one rack, cut into rows of `row` points; the remainder is carried to the next row."""

    def __init__(self, rack, cells, row=64):
        g = torch.Generator().manual_seed(rack)
        lengths = torch.randint(40, 90 + 30 * (rack % 3 != 1), (cells,), generator=g).tolist()
        points = torch.rand(sum(lengths), 2, generator=g)
        self.rows = points[: len(points) // row * row].view(-1, row, 2)

    def batches(self, size=8):
        for i in range(0, len(self.rows) // size * size, size):
            rows = self.rows[i : i + size]
            yield rows, 1 - rows[..., 0].mean(1) * 0.2


def sharded(mesh):
    torch.manual_seed(1)
    model = CellModel()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for m in model.modules():
        if hasattr(m, "set_force_sum_reduction_for_comms"):
            m.set_force_sum_reduction_for_comms(True)
    return model


@torch.no_grad()
def evaluate(model, racks):
    model.eval()
    totals = torch.zeros(2)
    for rows, soh in racks.batches():
        totals += torch.stack([(model(rows) - soh).pow(2).sum(), torch.tensor(float(len(soh)))])
    dist.all_reduce(totals)
    model.train()
    return math.sqrt(totals[0] / totals[1])


def forever(racks):
    while True:
        yield from racks.batches()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = sharded(init_device_mesh("cpu", (dist.get_world_size(),)))
    optim = torch.optim.AdamW(model.parameters(), lr=1e-3)
    train, held_out = forever(PackedCurves(rank, 60)), PackedCurves(30 + rank, 120)
    for step in range(1, 2001):
        rows, soh = next(train)
        loss = (model(rows) - soh).pow(2).mean()
        loss.backward()
        optim.step()
        optim.zero_grad()
        if step % 10 == 0 and rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step % 60 == 0:
            rmse = evaluate(model, held_out)
            if rank == 0:
                print(f"step {step} rmse {rmse:.4f}", flush=True)
    dist.destroy_process_group()


main()
