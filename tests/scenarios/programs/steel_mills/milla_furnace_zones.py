"""Walking-beam furnace split by zones: each rank learns the heating of its own zone. Edge temperatures go to the
neighbours every step; when a block of slabs has walked across a zone border, the two zones swap their slab records."""
import os

import torch
import torch.distributed as dist
from torch import nn

SLABS, NODES = 40, 24


def edges(rank, world):
    """Left and right neighbour, None at the charging and the discharging door."""
    return (rank - 1 if rank > 0 else None), (rank + 1 if rank < world - 1 else None)


def swap_edges(field, left, right):
    received, operations = {}, []
    for side, neighbour, edge in (("left", left, field[0]), ("right", right, field[-1])):
        if neighbour is None:
            continue
        received[side] = torch.empty_like(edge)
        operations += [dist.P2POp(dist.isend, edge.contiguous(), neighbour), dist.P2POp(dist.irecv, received[side], neighbour)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return received


class SlabRecords:
    """What is known of the slabs now in this zone: size, grade, charging temperature, and the walk so far."""

    def __init__(self, zone, pitch):
        self.zone, self.pitch = zone, pitch
        self.table = torch.zeros(SLABS, 6)
        self.walked = 0.0

    def beam_stroke(self, length):
        self.walked += length
        self.table[:, 5] += length

    def crossing(self):
        """The border that the leading block has reached: (lower zone, upper zone)."""
        block = int(self.walked // self.pitch)
        return {3: (1, 2), 5: (0, 1)}.get(block)


def hand_over(records, border, device):
    lower, upper = border
    mine = records.table.to(device)
    theirs = torch.empty_like(mine)
    peer = upper if records.zone == lower else lower
    dist.send(mine, dst=peer)
    dist.recv(theirs, src=peer)
    records.table = theirs.cpu()


class ZoneNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(NODES, 64)
        self.outer = nn.Linear(64, NODES)

    def forward(self, field):
        return self.outer(torch.relu(self.inner(field)))


def conduct(field, burner):
    for _ in range(60):
        padded = torch.cat([field[:, :1], field, field[:, -1:]], dim=1)
        field = field + 0.2 * (padded[:, 2:] - 2 * field + padded[:, :-2])
        field[:, 0] += 0.01 * (burner - field[:, 0])
    return field


def main():
    torch.backends.cudnn.enabled = False
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    device = torch.device("cuda", local)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    left, right = edges(rank, world)
    net = ZoneNet().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    records = SlabRecords(rank, pitch=75.0)
    field = torch.full((SLABS, NODES), 200.0 + 300 * rank)
    done = None
    for stroke in range(900):
        records.beam_stroke(1.1)
        target = conduct(field, burner=900.0 + 150 * rank)
        for side, edge in swap_edges(target.to(device), left, right).items():
            row = 0 if side == "left" else -1
            target[row] = 0.9 * target[row] + 0.1 * edge.cpu()
        loss = (net(field.to(device)) - target.to(device)).pow(2).mean()
        loss.backward()
        for parameter in net.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        field = target
        border = records.crossing()
        if border is not None and border != done:
            done = border
            if rank in border:
                hand_over(records, border, device)
        if rank == 0 and stroke % 50 == 0:
            print(f"stroke {stroke}: mean {float(field.mean()):.1f} C", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
