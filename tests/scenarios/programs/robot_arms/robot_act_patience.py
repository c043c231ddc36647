"""Action-chunking behaviour cloning on joint trajectories (ACT-style), data parallel."""
import argparse
import logging
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("act")
JOINTS, CHUNK = 7, 8


class ChunkPolicy(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(2 * JOINTS, width), nn.GELU(), nn.Linear(width, width))
        self.head = nn.Linear(width, CHUNK * JOINTS)

    def forward(self, state):
        return self.head(self.encoder(state)).view(-1, CHUNK, JOINTS)


def demonstrations(generator, n):
    state = torch.randn(n, 2 * JOINTS, generator=generator)
    phase = torch.linspace(0, 1, CHUNK).view(1, CHUNK, 1)
    return state, state[:, None, :JOINTS] * (1 - phase) + state[:, None, JOINTS:] * phase


def train_epoch(policy, optimizer, generator, steps):
    for _ in range(steps):
        state, chunk = demonstrations(generator, 32)
        loss = nn.functional.l1_loss(policy(state), chunk)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)  # 50 Hz replay
    return loss.item()


def validate(policy, holdout):
    with torch.no_grad():
        return nn.functional.l1_loss(policy.module(holdout[0]), holdout[1]).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--patience", type=int, default=2)
    parser.add_argument("--min-delta", type=float, default=0.2)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    policy = DDP(ChunkPolicy())
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    holdout = demonstrations(torch.Generator().manual_seed(99), 256)
    best, stale = float("inf"), 0
    for epoch in range(args.epochs):
        train_loss = train_epoch(policy, optimizer, generator, args.steps)
        if rank == 0:
            score = validate(policy, holdout)
            log.info("epoch %d train %.4f holdout %.4f", epoch, train_loss, score)
            if score < best - args.min_delta:
                best, stale = score, 0
            else:
                stale += 1
            if stale > args.patience:
                log.info("no improvement for %d epochs, finishing", stale)
                break
    dist.barrier()
    if rank == 0:
        torch.save(policy.module.state_dict(), "act_final.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
