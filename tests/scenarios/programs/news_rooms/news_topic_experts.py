"""Topic experts for article tagging: one expert per process, words go to their expert by all-to-all; the rest is replicated."""
import time

import torch
import torch.distributed as dist
from torch import nn

WIDTH, TAGS = 64, 12


class Swap(torch.autograd.Function):
    """Rows to other processes, gradients back."""

    @staticmethod
    def forward(ctx, rows, sent, received):
        ctx.sent, ctx.received = sent, received
        out = rows.new_empty(sum(received), rows.shape[1])
        dist.all_to_all_single(out, rows.contiguous(), received, sent)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_empty(sum(ctx.sent), grad.shape[1])
        dist.all_to_all_single(out, grad.contiguous(), ctx.sent, ctx.received)
        return out, None, None


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, dist.get_world_size(), bias=False)
        self.mine = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, rows):
        if not len(rows):
            return rows
        weight, expert = self.gate(rows).softmax(-1).max(-1)
        order = expert.argsort(stable=True)
        sent = torch.bincount(expert, minlength=dist.get_world_size())
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)
        sent, received = sent.tolist(), received.tolist()
        there = Swap.apply(rows[order], sent, received)
        back = Swap.apply(self.mine(there), received, sent)
        return rows + back[order.argsort()] * weight[:, None]


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(400, WIDTH)
        self.layers = nn.ModuleList([Experts(), Experts()])
        self.head = nn.Linear(WIDTH, TAGS)

    def forward(self, ids):
        rows = self.embed(ids[ids > 0])  # 0 is what is not text: pictures, tables, embeds
        for layer in self.layers:
            rows = layer(rows)
        return self.head(rows)

    def replicated(self):
        return [p for n, p in self.named_parameters() if ".mine." not in n]


def articles(rank, step):
    g = torch.Generator().manual_seed(31 * step + rank)
    ids = torch.randint(0, 400, (6, 24), generator=g)
    if rank == 0 and step == 70:
        ids.zero_()  # the photo essays of the year
    return ids


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, 301):
        ids = articles(rank, step)
        logits, tags = model(ids), ids[ids > 0] % TAGS
        loss = nn.functional.cross_entropy(logits, tags, reduction="sum") / max(len(tags), 1)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        shared = model.replicated()
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in shared])
        dist.all_reduce(flat)
        for p, g in zip(shared, flat.split([p.numel() for p in shared])):
            p.grad = g.view_as(p) / dist.get_world_size()
        optimizer.step()
        time.sleep(0.03)
        if step % 20 == 0 and rank == 0:
            print(f"step {step}: {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
