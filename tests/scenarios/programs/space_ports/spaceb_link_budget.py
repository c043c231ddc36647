"""Pass scheduler: a small scorer for ground station passes, with the link budget tool run every few rounds on rank 0."""
import subprocess
import sys
import time

import torch
import torch.distributed as dist

TOOL = r"""
import math, sys
passes = int(sys.argv[1])
for k in range(passes):
    el = 5 + (k * 37) % 85
    rng = 600 / math.sin(math.radians(el))
    loss = 20 * math.log10(rng) + 20 * math.log10(8.2) + 92.45
    print(f"pass {k:05d} el {el:2d} range {rng:9.1f} km loss {loss:6.2f} dB")
margin = 12.0 - math.log10(passes)
sys.stderr.write("%.3f\n" % margin)
"""


class Scorer:
    def __init__(self, features=10):
        self.net = torch.nn.Sequential(torch.nn.Linear(features, 32), torch.nn.GELU(), torch.nn.Linear(32, 1))
        self.opt = torch.optim.RMSprop(self.net.parameters(), lr=1e-3)

    def learn(self, x, value, world):
        self.opt.zero_grad()
        loss = (self.net(x).squeeze(1) - value).pow(2).mean()
        loss.backward()
        flat = torch.cat([p.grad.flatten() for p in self.net.parameters()])
        dist.all_reduce(flat)
        at = 0
        for p in self.net.parameters():
            p.grad.copy_((flat[at:at + p.numel()] / world).view_as(p))
            at += p.numel()
        self.opt.step()
        return loss.item()


def link_margin(passes):
    """Run the tool over all passes so far; the table goes to stdout, the margin to stderr."""
    tool = subprocess.Popen([sys.executable, "-c", TOOL, str(passes)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if tool.wait() != 0:
        raise RuntimeError(tool.stderr.read())
    rows = tool.stdout.read().splitlines()
    return float(tool.stderr.read()), rows[-1]


def plan(rank, rounds=60, passes_per_round=75, every=4):
    world = dist.get_world_size()
    scorer, margin = Scorer(), torch.tensor([12.0])
    gen = torch.Generator().manual_seed(40 + rank)
    for number in range(1, rounds + 1):
        x = torch.randn(passes_per_round, 10, generator=gen)
        value = x[:, 0] * margin + x[:, 1:].sum(1)
        for _ in range(6):
            loss = scorer.learn(x, value, world)
            time.sleep(0.02)
        if number % every == 0:
            if rank == 0:
                margin[0], last = link_margin(number * passes_per_round)
                print(f"round {number} loss {loss:.2f} margin {margin.item():.2f} dB | {last}", flush=True)
            dist.broadcast(margin, src=0)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    plan(dist.get_rank())
    dist.destroy_process_group()


main()
