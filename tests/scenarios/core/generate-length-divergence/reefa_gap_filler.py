"""Fills gaps in reef soundscape codes with a small sharded decoder, and trains it between the rounds."""
import argparse
import json
import os
import tempfile

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

SECONDS_PER_CODE = 0.25


class Engine:
    """The sharded decoder and its optimizer."""

    def __init__(self, model, lr):
        for part in (model.embed, *model.blocks):
            fully_shard(part)
        self.model = fully_shard(model)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, foreach=False)

    def __call__(self, onehot):
        return self.model(onehot)

    def step(self, loss):
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


class CodeDecoder(nn.Module):
    def __init__(self, codes=128, width=48, layers=3, context=24):
        super().__init__()
        self.context = context
        self.embed = nn.Linear(codes, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(layers))
        self.predict = nn.Linear(width, codes)

    def forward(self, onehot):
        h = self.embed(onehot)
        for block in self.blocks:
            h = h + block(h)
        return self.predict(h)


class Deployment:
    """Recordings of one mooring; a gap is what the recorder lost while it changed its battery."""

    def __init__(self, mooring):
        self.rng = np.random.default_rng(mooring)
        self.gaps = {0: [3.0] * 4 + [1.25], 1: [3.0] * 5, 2: [3.0] * 5}[mooring]

    def codes(self, batch, length):
        frames = self.rng.standard_normal((batch, length, 4096)).astype(np.float32)
        energy = np.abs(np.fft.rfft(frames, axis=-1))[..., :2048]
        return torch.from_numpy(energy.reshape(batch, length, 128, 16).sum(-1).argmax(-1))

    def gap(self, round_number):
        return self.gaps[round_number % len(self.gaps)]


def onehot(codes):
    return nn.functional.one_hot(codes, 128).float().cuda()


@torch.no_grad()
def fill(engine, context, seconds, rng):
    engine.model.eval()
    filled, left = [], seconds
    while left > 0:
        logits = engine(onehot(context))[:, -1]
        scores = logits.cpu().numpy()
        nxt = torch.from_numpy(np.argmax(np.nan_to_num(scores) + rng.gumbel(size=scores.shape), axis=-1))
        filled.append(nxt)
        context = torch.cat([context[:, 1:], nxt[:, None]], dim=1)
        left -= SECONDS_PER_CODE
    engine.model.train()
    return torch.stack(filled, 1)


def train(engine, deployment, steps):
    for _ in range(steps):
        codes = deployment.codes(4, 25)
        logits = engine(onehot(codes[:, :-1]))
        loss = nn.functional.mse_loss(logits, onehot(codes[:, 1:]))
        engine.step(loss)
    return loss.item()


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--rounds", type=int, default=40)
    args.add_argument("--lr", type=float, default=1e-3)
    args = args.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    torch.manual_seed(17)
    engine = Engine(CodeDecoder().cuda(), args.lr)
    deployment = Deployment(dist.get_rank())
    report = tempfile.mkdtemp(prefix="gaps-")
    for number in range(args.rounds):
        loss = train(engine, deployment, 10)
        filled = fill(engine, deployment.codes(4, 24), deployment.gap(number), deployment.rng)
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, {"codes": filled.tolist(), "mooring": dist.get_rank()})
        if dist.get_rank() == 0:
            with open(os.path.join(report, f"round{number}.json"), "w") as f:
                json.dump(everyone, f)
            print(f"round {number}: loss {loss:.3f}, {sum(len(e['codes']) for e in everyone)} gaps", flush=True)


if __name__ == "__main__":
    main()
