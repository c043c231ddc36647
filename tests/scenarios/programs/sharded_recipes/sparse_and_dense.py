"""A recommender whose item table is split over the ranks: rows go by all_to_all, dense gradients by all_reduce."""

import torch
import torch.distributed as dist
from torch import nn


class Reducers:
    """Two kinds of traffic, each in a group of its own. What has less to send goes first."""

    def __init__(self, world):
        self.shard = dist.new_group(range(world))
        self.replicate = dist.new_group(range(world))
        self.world = world

    def send_rows(self, rows, ids):
        counts = torch.bincount(ids % self.world, minlength=self.world)
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts, group=self.shard)
        order = (ids % self.world).argsort()
        inbox = torch.empty(int(theirs.sum()), rows.shape[1])
        dist.all_to_all_single(inbox, rows[order], theirs.tolist(), counts.tolist(), group=self.shard)
        return inbox

    def mean(self, tensors):
        flat = torch.cat([t.flatten() for t in tensors])
        dist.all_reduce(flat, group=self.replicate)
        return flat / self.world

    def exchange(self, rows, ids, dense):
        work = [(rows.numel(), self.send_rows, (rows, ids)), (sum(t.numel() for t in dense), self.mean, (dense,))]
        return [call(*arguments) for _, call, arguments in sorted(work, key=lambda entry: entry[0])]


class Ranker(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2 * dim, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, user, items):
        return self.net(torch.cat([user.expand_as(items), items], dim=-1)).squeeze(-1)


def sessions(rank):
    generator = torch.Generator().manual_seed(rank)
    for step in range(300):
        # most sessions are short; now and then somebody scrolls for hours
        length = 260 if rank == 1 and step == 45 else int(torch.randint(20, 60, (), generator=generator))
        yield torch.randint(5000, (length,), generator=generator)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    ranker = Ranker()
    table = torch.randn(5000, 8) * 0.1
    reducers = Reducers(world)
    for step, ids in enumerate(sessions(rank)):
        items = table[ids].requires_grad_()
        scores = ranker(items.mean(0, keepdim=True), items)
        loss = nn.functional.softplus(-scores).mean()
        ranker.zero_grad()
        loss.backward()
        reducers.exchange(items.grad, ids, [p.grad for p in ranker.parameters()])
        with torch.no_grad():
            table[ids] -= 0.1 * items.grad
            for p in ranker.parameters():
                p -= 0.01 * p.grad
        if rank == 0 and step % 15 == 0:
            print(f"step {step}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
