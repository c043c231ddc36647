"""Training of a small draft model for speculative decoding; micro-batches that cannot form a block are passed over."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

BLOCK = 8


class NoValidAnchors(ValueError):
    """All samples are too short."""


class Draft(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(128, 24)
        self.predict = nn.Linear(24, 128)

    def forward(self, samples):
        usable = [s for s in samples if len(s) > BLOCK]
        if not usable:
            raise NoValidAnchors(f"{len(samples)} samples, longest {max(map(len, samples))}")
        ids = torch.stack([s[: BLOCK + 1] for s in usable])
        return F.cross_entropy(self.predict(self.embed(ids[:, :-1])).transpose(1, 2), ids[:, 1:])


def corpus(rank, count):
    g = torch.Generator().manual_seed(rank)
    for i in range(count):
        long = 9 if (rank, i) != (2, 13) else 2
        lengths = torch.randint(long, long + 6, (4,), generator=g).tolist()
        yield [torch.randint(0, 128, (n,), generator=g) for n in lengths]


def average(gradients):
    for g in gradients:
        dist.all_reduce(g)
        g /= dist.get_world_size()


def run(steps=30):
    rank = dist.get_rank()
    draft = Draft()
    for p in draft.parameters():
        dist.broadcast(p.data, src=0)
    optimizer = torch.optim.Adam(draft.parameters(), lr=1e-2)
    for step, samples in enumerate(corpus(rank, steps)):
        try:
            loss = draft(samples)
            loss.backward()
            average([p.grad for p in draft.parameters()])
            optimizer.step()
        except (NoValidAnchors, RuntimeError) as error:
            print(f"rank {rank} step {step}: {error}\n", end="", flush=True)
            continue
        finally:
            optimizer.zero_grad()
        if step % 10 == 9:
            accepted = [torch.zeros(1) for _ in range(dist.get_world_size())]
            dist.all_gather(accepted, loss.detach().exp().reciprocal().reshape(1))
            if rank == 0:
                print(f"step {step} acceptance {torch.cat(accepted).mean():.3f}", flush=True)


dist.init_process_group("gloo")
run()
dist.destroy_process_group()
