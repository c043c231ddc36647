"""Stereo baited cameras (BRUVS): the two cameras of a rig swap embeddings, fish lengths are learned from both."""
import os
import sys

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn

EMB = 64


class Camera:
    """One camera of a rig: its depth sensor and its frames."""

    def __init__(self, rank):
        self.rig, self.side = divmod(rank, 2)
        self.rng = np.random.default_rng(rank + 7)
        self.tilt = (0.45, -0.3)[self.rig]

    def depth(self, t):
        """Metres, one decimal, as the logger stores it."""
        slack = 1.0 if t < 55 or self.rig else 0.0  # rig 0 lies flat on the sand after slack tide
        return round(18.0 + self.rig * 4 + (self.tilt * (1 if self.side else -1)) * slack, 1)

    def frame(self):
        pixels = self.rng.standard_normal((16, 200, 320), dtype=np.float32)
        return torch.from_numpy(np.abs(np.fft.rfft2(pixels)).mean(axis=1)[:, :EMB].astype(np.float32))


class RigLink:
    """Hands embeddings to the other camera. The deeper one speaks first."""

    def __init__(self, rank):
        self.peer = rank ^ 1

    def swap(self, emb, own_depth, peer_depth):
        other = torch.empty_like(emb)
        if own_depth >= peer_depth:
            dist.send(emb, dst=self.peer)
            dist.recv(other, src=self.peer)
        else:
            dist.recv(other, src=self.peer)
            dist.send(emb, dst=self.peer)
        return other


def average(params, world):
    flat = torch.cat([p.grad.reshape(-1) for p in params])
    dist.all_reduce(flat)
    flat /= world
    at = 0
    for p in params:
        p.grad.copy_(flat[at:at + p.numel()].view_as(p))
        at += p.numel()


def main(frames=140):
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    me, link = Camera(rank), RigLink(rank)
    other_side = Camera(rank ^ 1)  # same calibration file, for the depth log of the other housing
    encoder, head = nn.Linear(EMB, EMB).cuda(), nn.Linear(2 * EMB, 1).cuda()
    params = [*encoder.parameters(), *head.parameters()]
    optim = torch.optim.SGD(params, lr=1e-3)
    for t in range(frames):
        emb = encoder(me.frame().cuda())
        other = link.swap(emb.detach().contiguous(), me.depth(t), other_side.depth(t))
        length = head(torch.cat([emb, other], dim=1))
        loss = (length - 0.3).square().mean()
        optim.zero_grad()
        loss.backward()
        average(params, world)
        optim.step()
        if t % 20 == 0:
            print(f"rig {me.rig} side {me.side} frame {t} depth {me.depth(t)} loss {loss.item():.3f}", file=sys.stderr, flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
