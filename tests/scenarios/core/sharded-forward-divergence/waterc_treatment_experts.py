"""Dose prediction for four treatment lines; every rank owns the expert of one line and serves the samples of all plants."""
import time

import torch
import torch.distributed as dist
from torch import nn

LINES = ("coagulation", "filtration", "ozonation", "chlorination")
FEATURES = 12


def raw_water(step, gen, n=32):
    """Samples of one plant: four indicator columns (one per line), then chemistry; the last column is the dose."""
    x = torch.rand(n, FEATURES + 1, generator=gen)
    bromide = max(0.0, 1.0 - step / 70.0)  # falls as the reservoir turns over in autumn
    x[:, 2] *= bromide
    x[:, -1] = x[:, :4].sum(1) * 0.4 + 0.1 * x[:, 5]
    time.sleep(0.04)
    return x


class LineExpert:
    def __init__(self, name):
        self.name = name
        self.net = nn.Sequential(nn.Linear(FEATURES, 64), nn.SiLU(), nn.Linear(64, 1))
        self.opt = torch.optim.Adam(self.net.parameters(), lr=3e-3)

    def fit_predict(self, samples):
        dose = self.net(samples[:, :-1]).squeeze(-1)
        loss = (dose - samples[:, -1]).pow(2).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return dose.detach().unsqueeze(-1)


class ExpertLayer:
    """Sends every sample to the owner of its line and fetches the dose; slots have a flag that tells whether they are used."""

    def __init__(self, expert, world, capacity=32):
        self.expert = expert
        self.world = world
        self.capacity = capacity

    def _dispatch(self, samples, line):
        slots = samples.new_zeros(self.world, self.capacity, samples.shape[1] + 1)
        for k in range(self.world):
            rows = samples[line == k]
            slots[k, :len(rows), :-1] = rows
            slots[k, :len(rows), -1] = 1
        arrived = torch.empty_like(slots)
        dist.all_to_all_single(arrived, slots)
        return arrived

    def _combine(self, answers, samples, line):
        back = torch.empty_like(answers)
        dist.all_to_all_single(back, answers)
        out = samples.new_zeros(len(samples), 1)
        for k in range(self.world):
            chosen = line == k
            out[chosen] = back[k, :int(chosen.sum())]
        return out

    def __call__(self, samples):
        line = samples[:, :4].argmax(1)
        arrived = self._dispatch(samples, line)
        used = arrived[..., -1] > 0
        if not used.any():
            return samples.new_zeros(len(samples), 1)
        answers = samples.new_zeros(self.world, self.capacity, 1)
        answers[used] = self.expert.fit_predict(arrived[used][:, :-1])
        return self._combine(answers, samples, line)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    gen = torch.Generator().manual_seed(900 + rank)
    layer = ExpertLayer(LineExpert(LINES[rank]), world)
    for step in range(160):
        samples = raw_water(step, gen)
        doses = layer(samples)
        error = (doses.squeeze(-1) - samples[:, -1]).abs().mean()
        dist.all_reduce(error)
        if rank == 0 and step % 20 == 0:
            print(f"step {step}: mean error {error.item() / world:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
