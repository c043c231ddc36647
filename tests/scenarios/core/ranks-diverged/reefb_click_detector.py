"""Snapping-shrimp click detector on hydrophone windows. Trains with DDP, scores held-out moorings at the end."""
import logging
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.backends.cudnn.enabled = False
log = logging.getLogger("clicks")

MOORINGS = {"lizard_n": 96, "lizard_s": 96, "heron_a": 96, "heron_b": 60, "osprey": 96, "myrmidon": 96}  # minutes held out
FRAME, BATCH = 512, 12


def spectra(minutes, seed):
    """Yields log-power spectra of one mooring, a batch at a time."""
    g = torch.Generator().manual_seed(seed)
    for start in range(0, minutes, BATCH):
        wave = torch.randn(min(BATCH, minutes - start), 64, FRAME * 2, generator=g)
        power = torch.fft.rfft(wave).abs().square().mean(1)[:, :FRAME]
        yield power.log1p(), (power.amax(1) > 1200).long()


def my_moorings(rank, world):
    names = sorted(MOORINGS)
    return [n for i, n in enumerate(names) if i % world == rank]


@torch.no_grad()
def validate(model, moorings, limit=None):
    model.eval()
    total = torch.zeros(3, dtype=torch.float64, device="cuda")
    seen = 0
    for name in moorings:
        for x, y in spectra(MOORINGS[name], seed=sum(map(ord, name))):
            if limit is not None and seen >= limit:
                break
            logits = model.module(x.cuda())
            part = torch.tensor([0.0, 1.0, len(y)], dtype=torch.float64, device="cuda")
            part[0] += nn.functional.cross_entropy(logits, y.cuda())
            dist.all_reduce(part)
            total += part
            seen += 1
    per_rank = [torch.zeros_like(total) for _ in range(dist.get_world_size())]
    dist.all_gather(per_rank, total)
    model.train()
    return [row[2] for row in (t.tolist() for t in per_rank)]


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    net = nn.Sequential(nn.Linear(FRAME, 64), nn.GELU(), nn.Linear(64, 2)).cuda()
    model = DDP(net, device_ids=[local])
    optim = torch.optim.SGD(model.parameters(), lr=0.02)
    for epoch in range(3):
        for step, (x, y) in enumerate(spectra(BATCH * 22, seed=epoch * 10 + rank)):
            loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
            optim.zero_grad(set_to_none=True)
            loss.backward()
            optim.step()
            if step % 10 == 0 and rank == 0:
                log.info("epoch %d step %d loss %.3f", epoch, step, loss.item())
        windows = validate(model, my_moorings(rank, world), limit=4)
        if rank == 0:
            log.info("epoch %d quick check on %s windows", epoch, windows)
    windows = validate(model, my_moorings(rank, world))
    if rank == 0:
        log.info("full check on %s windows", windows)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
