"""Sharded reserve-price model; every so often the full weights go out to the bidding replicas."""
import time

import torch
import torch.distributed as dist


class ShardedParam:
    def __init__(self, name, full, rank, world):
        self.name, self.shape, self.world = name, full.shape, world
        pad = -full.numel() % world
        self.shard = torch.cat([full.flatten(), full.new_zeros(pad)]).chunk(world)[rank].clone()

    def full(self, group):
        out = torch.empty(self.shard.numel() * self.world)
        dist.all_gather_into_tensor(out, self.shard, group=group)
        return out[: self.shape.numel()].view(self.shape)


class ReserveModel:
    def __init__(self, rank, world, width=640):
        torch.manual_seed(0)
        sizes = {"in.w": (width, 80), "in.b": (width,), "out.w": (4, width), "out.b": (4,)}
        self.params = [ShardedParam(n, torch.randn(s) * 0.05, rank, world) for n, s in sizes.items()]
        self.train_group = dist.new_group(list(range(world)))
        self.rank, self.world = rank, world

    def stream(self):
        for p in self.params:
            yield p.name, p.full(self.train_group)

    def step(self, x, y, lr=0.01):
        w = {n: t.requires_grad_(True) for n, t in self.stream()}
        h = torch.relu(x @ w["in.w"].T + w["in.b"])
        loss = (h @ w["out.w"].T + w["out.b"] - y).pow(2).mean()
        loss.backward()
        for p in self.params:
            g = w[p.name].grad.flatten()
            dist.all_reduce(g, group=self.train_group)
            g = torch.cat([g, g.new_zeros(-g.numel() % self.world)]).chunk(self.world)[self.rank]
            p.shard -= lr * g / self.world
        return loss.item()


class Replicas:
    """The bidding processes live with the ranks; rank 0 feeds them."""

    def __init__(self, model):
        self.model, self.group = model, dist.new_group(list(range(model.world)))
        self.weights = {}

    def send(self, items):
        for name, tensor in items:
            dist.broadcast(tensor, src=0, group=self.group)
            self.weights[name] = tensor

    def receive(self, items):
        expected = list(items)
        for name, like in expected:
            buffer = torch.empty_like(like)
            dist.broadcast(buffer, src=0, group=self.group)
            self.weights[name] = buffer

    def refresh(self):
        (self.send if self.model.rank == 0 else self.receive)(self.model.stream())


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = ReserveModel(dist.get_rank(), dist.get_world_size())
    replicas = Replicas(model)
    gen = torch.Generator().manual_seed(model.rank)
    for step in range(1, 900):
        x = torch.randn(160, 80, generator=gen)
        loss = model.step(x, x[:, :4].abs())
        time.sleep(0.04)
        if model.rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss:.4f}", flush=True)
        if step % 50 == 0:
            replicas.refresh()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
