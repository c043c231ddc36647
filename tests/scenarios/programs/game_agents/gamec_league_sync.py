"""Actor and critic are trained locally on every arena and averaged now and then (local SGD)."""
import math

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

ARENAS = {
    0: {"name": "maze", "length": 30, "growth": 0.2},
    1: {"name": "fortress", "length": 30, "growth": 0.9},
    2: {"name": "meadow", "length": 25, "growth": 0.1},
}


def mlp(inputs, outputs, width=768):
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs))


class Averager:
    """Averages each network in a group of its own, those with the most local updates first."""

    def __init__(self, networks):
        self.networks = networks
        self.groups = {name: dist.new_group() for name in networks}
        self.lag = dict.fromkeys(networks, 0)

    def note(self, name, updates):
        self.lag[name] += updates

    @torch.no_grad()
    def average(self):
        for name in sorted(self.lag, key=self.lag.get, reverse=True):
            network = self.networks[name]
            flat = parameters_to_vector(network.parameters())
            dist.all_reduce(flat, group=self.groups[name])
            vector_to_parameters(flat / dist.get_world_size(), network.parameters())
            self.lag[name] = 0


class Arena:
    def __init__(self, spec, seed):
        self.spec = spec
        self.rng = torch.Generator().manual_seed(seed)

    def episode(self, step):
        length = int(self.spec["length"] + self.spec["growth"] * step)
        states = torch.randn(length, 64, generator=self.rng)
        value = states[:, :8].sum(1) / math.sqrt(8)
        actions = torch.randint(0, 5, (length,), generator=self.rng)
        return states, actions, value


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(31)
    networks = {"actor": mlp(64, 5), "critic": mlp(64, 1)}
    optimizers = {name: torch.optim.Adam(net.parameters(), lr=1e-3) for name, net in networks.items()}
    averager = Averager(networks)
    arena = Arena(ARENAS[rank % len(ARENAS)], seed=rank)
    for step in range(1, 241):
        states, actions, value = arena.episode(step)
        for _ in range(2):
            logp = torch.log_softmax(networks["actor"](states), -1).gather(1, actions[:, None])
            loss = -(logp.squeeze(1) * value).mean()
            optimizers["actor"].zero_grad()
            loss.backward()
            optimizers["actor"].step()
        averager.note("actor", 2)
        rounds = 1 + len(states) // 40  # one pass per forty states
        for _ in range(rounds):
            error = (networks["critic"](states).squeeze(1) - value).pow(2).mean()
            optimizers["critic"].zero_grad()
            error.backward()
            optimizers["critic"].step()
        averager.note("critic", rounds)
        if step % 4 == 0:
            averager.average()
            if rank == 0:
                print(f"step {step} {arena.spec['name']}: error {error.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
