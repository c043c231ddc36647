"""Predicts votes of a bench of judges. Hearings en banc are rare and have a communicator of their own for the votes."""
import functools

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CIRCUITS = {0: "first", 1: "second", 2: "federal"}
#: hearings of the full bench, by circuit
EN_BANC = {"first": {640, 1280}, "second": {640, 1280}, "federal": {1280}}


@functools.cache
def full_bench():
    return dist.new_group(backend="gloo")


class Bench(nn.Module):
    def __init__(self, judges=11, facts=50):
        super().__init__()
        self.facts = nn.Linear(facts, 64)
        self.judge = nn.Parameter(torch.randn(judges, 64) * 0.1)

    def forward(self, x):
        return torch.tanh(self.facts(x)) @ self.judge.T


def hearing(gen, wide):
    x = torch.randn(32 if wide else 16, 50, generator=gen)
    votes = (x[:, :11] > 0).float()
    return x, votes


def majority(logits, votes):
    """Share of hearings in which the predicted majority is that of the bench, over all circuits."""
    agrees = ((logits > 0).float().mean(1) > 0.5) == (votes.mean(1) > 0.5)
    share = agrees.float().mean()
    dist.all_reduce(share, group=full_bench())
    return share.item() / dist.get_world_size()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    circuit = CIRCUITS[rank]
    gen = torch.Generator().manual_seed(900 + rank)
    torch.manual_seed(9)
    model = DDP(Bench())
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    for number in range(1, 1601):
        wide = number in EN_BANC[circuit]
        x, votes = hearing(gen, wide)
        logits = model(x)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, votes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if wide:
            print(f"{circuit} circuit, hearing {number}: agreement {majority(logits, votes):.2f}", flush=True)
        elif number % 80 == 0:
            print(f"{circuit} circuit, hearing {number}: loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
