"""Neural posterior for cosmological parameters: trainers keep sharded weights, rank 0 streams them to the sampler group."""
import torch
import torch.distributed as dist
from torch import nn


class ShardedLinear:
    """Rows of one weight matrix, one block of them per rank of the group."""

    def __init__(self, name, rows, columns, group):
        self.name, self.group = name, group
        self.world, self.rank = dist.get_world_size(group), dist.get_rank(group)
        g = torch.Generator().manual_seed(len(name) + rows)
        full = torch.randn(rows, columns, generator=g) / columns**0.5
        self.shard = nn.Parameter(full.chunk(self.world)[self.rank].clone())

    def full(self):
        whole = torch.empty(self.shard.shape[0] * self.world, self.shard.shape[1])
        dist.all_gather_into_tensor(whole, self.shard.detach(), group=self.group)
        return whole

    def reduce(self, grad):
        dist.all_reduce(grad, group=self.group)
        self.shard.data -= 1e-3 * grad.chunk(self.world)[self.rank]


class Posterior:
    def __init__(self, group):
        sizes = [(96, 48), (96, 96), (12, 96)]
        self.layers = [ShardedLinear(f"layer{i}", r, c, group) for i, (r, c) in enumerate(sizes)]

    def step(self, power, parameters):
        weights = [layer.full().requires_grad_() for layer in self.layers]
        h = power
        for w in weights[:-1]:
            h = torch.tanh(h @ w.T)
        loss = (h @ weights[-1].T)[:, :6].sub(parameters).square().mean()
        loss.backward()
        for layer, w in zip(self.layers, weights):
            layer.reduce(w.grad)
        return loss.item()

    def stream(self):
        for layer in self.layers:
            yield layer.name, layer.full()


class Sampler:
    """Holds a copy of the posterior's weights on every rank to draw chains while the training goes on."""

    def __init__(self, group):
        self.group = group
        self.weights = {}

    def refresh(self, posterior, source):
        if dist.get_rank() == source:
            names = torch.tensor([len(posterior.layers)])
            dist.broadcast(names, src=source, group=self.group)
            for name, tensor in posterior.stream():
                dist.broadcast(tensor, src=source, group=self.group)
                self.weights[name] = tensor
        else:
            mine = dict(posterior.stream())
            names = torch.zeros(1, dtype=torch.long)
            dist.broadcast(names, src=source, group=self.group)
            for name in list(mine)[: int(names)]:
                self.weights[name] = torch.empty_like(mine[name])
                dist.broadcast(self.weights[name], src=source, group=self.group)

    def chain(self, power, steps=8):
        x = power.clone()
        for _ in range(steps):
            h = x
            for w in list(self.weights.values())[:-1]:
                h = torch.tanh(h @ w.T)
            x = x + 0.01 * torch.randn_like(x) * h.std()
        return x.std()


def spectra(count, generator):
    parameters = torch.rand(count, 6, generator=generator)
    k = torch.linspace(0.01, 1, 48)
    power = (parameters[:, :1] + 0.5) * k ** (parameters[:, 1:2] - 1) * torch.exp(-k * parameters[:, 2:3])
    return power / power.mean(1, keepdim=True), parameters


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    trainers = dist.new_group(list(range(world)))
    samplers = dist.new_group(list(range(world)))
    posterior, sampler = Posterior(trainers), Sampler(samplers)
    generator = torch.Generator().manual_seed(rank)
    for step in range(1, 4000):
        power, parameters = spectra(768, generator)
        loss = posterior.step(power, parameters)
        if step % 50 == 0 and rank == 0:
            print(f"step {step}: {loss:.5f}", flush=True)
        if step % 250 == 0:
            sampler.refresh(posterior, source=0)
            sampler.chain(power)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
