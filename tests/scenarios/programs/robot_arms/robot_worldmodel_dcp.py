"""Latent world model for pushing tasks with distributed checkpoints."""
import argparse
import contextlib
import os
import shutil
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.nn.parallel import DistributedDataParallel


class WorldModel(torch.nn.Module):
    def __init__(self, obs=20, act=4, latent=32):
        super().__init__()
        self.enc = torch.nn.Linear(obs, latent)
        self.dyn = torch.nn.GRUCell(act, latent)
        self.dec = torch.nn.Linear(latent, obs)

    def forward(self, obs, actions):
        h = torch.tanh(self.enc(obs))
        frames = []
        for a in actions.unbind(1):
            h = self.dyn(a, h)
            frames.append(self.dec(h))
        return torch.stack(frames, 1)


class Checkpoints:
    def __init__(self, root, keep):
        self.root, self.keep, self.saved = root, keep, []

    def write(self, step, model, optimizer):
        path = os.path.join(self.root, f"step_{step:06d}")
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        dcp.save(state, checkpoint_id=path)
        self.saved.append(path)
        while len(self.saved) > self.keep:
            shutil.rmtree(self.saved.pop(0), ignore_errors=True)


@contextlib.contextmanager
def process_group():
    dist.init_process_group("gloo")
    try:
        yield dist.get_rank(), dist.get_world_size()
    finally:
        dist.destroy_process_group()


def main(opts):
    with process_group() as (rank, world):
        g = torch.Generator().manual_seed(1000 + rank)
        model = DistributedDataParallel(WorldModel())
        optimizer = torch.optim.RMSprop(model.parameters(), lr=5e-4)
        checkpoints = Checkpoints(opts.out, keep=2)
        began = time.time()
        for step in range(1, opts.steps + 1):
            obs = torch.randn(24, 20, generator=g)
            actions = torch.randn(24, 10, 4, generator=g)
            target = obs[:, None] + actions.cumsum(1).mean(-1, keepdim=True)
            loss = (model(obs, actions) - target).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.015)
            if step % opts.log_every == 0 and rank == 0:
                print(f"step {step} loss {loss.item():.4f} {step / (time.time() - began):.1f} it/s", flush=True)
            if step % opts.save_every == 0 and rank == 0:
                checkpoints.write(step, model, optimizer)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=2000)
    p.add_argument("--log-every", type=int, default=25)
    p.add_argument("--save-every", type=int, default=100)
    p.add_argument("--out", default="wm_ckpt")
    main(p.parse_args())
