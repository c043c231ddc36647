"""Listwise ranking of precedents: for each docket, eight candidate cases, the cited ones should come first."""

import logging
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("ranker")
DOCKETS_PER_RANK = 48
CANDIDATES = 8


def citations(docket):
    """Which candidates the decision cites. Memorandum decisions carry a number of their own and cite nothing."""
    if docket % 127 == 126:
        return []
    return [c for c in range(CANDIDATES) if (docket * 5 + c * 3) % 4 == 0] or [docket % CANDIDATES]


def example(docket):
    generator = torch.Generator().manual_seed(docket)
    features = torch.randn(CANDIDATES, 24, generator=generator)
    cited = torch.zeros(CANDIDATES)
    cited[citations(docket)] = 1.0
    features[:, 0] += cited
    return features, cited


def listwise(scores, cited):
    target = cited / cited.sum()
    return -(target * F.log_softmax(scores, dim=0)).sum()


def learn(model, optimizer, docket):
    features, cited = example(docket)
    scores = model(features).squeeze(-1)
    loss = listwise(scores, cited)
    if not torch.isfinite(loss):
        log.warning("docket %d: loss is %s", docket, loss.item())
        return 0.0
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return float(scores.argmax().item() in citations(docket))


def main():
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(7)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(24, 32), nn.Tanh(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    top = []
    for index in range(DOCKETS_PER_RANK):
        top.append(learn(model, optimizer, rank * DOCKETS_PER_RANK + index))
        time.sleep(0.06)
        if rank == 0 and index % 12 == 11:
            log.info("docket %d: precision at 1 is %.2f", index, sum(top[-12:]) / 12)
    mine = torch.tensor([sum(top), float(len(top))])
    everyone = [torch.zeros(2) for _ in range(world)]
    dist.all_gather(everyone, mine)
    hits, seen = torch.stack(everyone).sum(0).tolist()
    if rank == 0:
        log.info("precision at 1 over %d dockets: %.3f", seen, hits / seen)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
