"""Value net for a dungeon crawler: one expert per kind of encounter, the experts sharded like the rest of the net."""
import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

ENCOUNTERS = ("melee", "ranged", "trap", "boss")


class Expert(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)

    def forward(self, x):
        return self.down(nn.functional.silu(self.up(x)))


class DungeonValue(nn.Module):
    def __init__(self, width=160):
        super().__init__()
        self.read = nn.Sequential(nn.Linear(48, width), nn.Tanh())
        self.experts = nn.ModuleDict({name: Expert(width) for name in ENCOUNTERS})
        self.value = nn.Linear(width, 1)

    def forward(self, rooms, kind):
        h = self.read(rooms)
        mixed = h.clone()
        for index, (name, expert) in enumerate(self.experts.items()):
            chosen = (kind == index).nonzero().squeeze(1)
            if chosen.numel():
                mixed = mixed.index_add(0, chosen, expert(h[chosen]))
        return self.value(mixed).squeeze(1)


class Delve:
    """Rooms of one delve in the order in which they were visited, floor by floor."""

    boss_floors = 12
    vaults = {0: (77,), 1: (140,), 2: (201,)}

    def __init__(self, party, rooms_per_floor=96):
        self.party, self.rooms = party, rooms_per_floor
        self.rng = torch.Generator().manual_seed(party)

    def floor(self, number):
        rooms = torch.randn(self.rooms, 48, generator=self.rng)
        kind = torch.arange(self.rooms) % 3
        if number % self.boss_floors == 0 or number in self.vaults[self.party]:
            kind[-4:] = ENCOUNTERS.index("boss")
        return rooms, kind, rooms[:, :4].sum(1) - kind.float()


def shard(net):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for expert in net.experts.values():
        fully_shard(expert, mesh=mesh, reshard_after_forward=False)
    fully_shard(net, mesh=mesh, reshard_after_forward=False)
    for module in net.modules():
        if hasattr(module, "set_force_sum_reduction_for_comms"):
            module.set_force_sum_reduction_for_comms(True)
    return net


def main(cli):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(2)
    net = shard(DungeonValue())
    optim = torch.optim.SGD(net.parameters(), lr=cli.lr, momentum=0.9)
    delve, began = Delve(dist.get_rank()), time.time()
    for number in range(cli.floors):
        rooms, kind, reward = delve.floor(number)
        loss = (net(rooms, kind) - reward).square().mean()
        loss.backward()
        optim.step()
        optim.zero_grad()
        if dist.get_rank() == 0 and number % 15 == 0:
            print(f"[{time.time() - began:5.1f}s] floor {number} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--floors", type=int, default=600)
    parser.add_argument("--lr", type=float, default=0.003)
    main(parser.parse_args())
