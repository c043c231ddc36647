"""Autopilot by cloning; now and then a flight is flown in the external flight dynamics program."""
import subprocess
import sys
import textwrap
from collections import namedtuple

import torch
import torch.distributed as dist
from torch import nn

Route = namedtuple("Route", "name minutes")
ROUTES = [[Route("ZRH-GVA", 40), Route("ZRH-VIE", 70)], [Route("ZRH-LHR", 90), Route("ZRH-SIN", 760)], [Route("ZRH-NCE", 60), Route("ZRH-FCO", 80)]]

DYNAMICS = textwrap.dedent(
    """
    import math, sys
    minutes, gain = int(sys.argv[1]), float(sys.argv[2])
    height, climb = 0.0, 0.0
    for second in range(0, minutes * 60, 30):
        climb += gain * (math.tanh((11000.0 - height) / 3000.0) * 15.0 - climb)
        height += climb * 30.0
        print(f"t={second:6d} height={height:9.1f} climb={climb:7.2f} mach={0.3 + height / 22000.0:5.3f}")
    print(f"final {height:.1f}")
    sys.exit(0 if height > 5000.0 else 3)
    """
)


class EnvelopeCheck:
    """Flies the dynamics program; the exit status tells whether the flight stayed within the envelope."""

    def __init__(self, routes):
        self.routes, self.turn = routes, 0

    def __call__(self, gain):
        route = self.routes[min(self.turn // 3, len(self.routes) - 1)]
        self.turn += 1
        flight = subprocess.Popen([sys.executable, "-c", DYNAMICS, str(route.minutes), f"{gain:.4f}"], stdout=subprocess.PIPE, text=True)
        status = flight.wait()
        last = flight.stdout.read().splitlines()[-1]
        return route.name, status == 0, last


class Clone(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 128), nn.ELU(), nn.Linear(128, 128), nn.ELU(), nn.Linear(128, 3))

    def forward(self, x):
        return self.layers(x)

    @property
    def gain(self):
        return 0.2 + 0.01 * torch.tanh(self.layers[-1].bias.detach().mean()).item()


def sync(module):
    for p in module.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
        p.grad.div_(dist.get_world_size())


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(31)
    model, check = Clone(), EnvelopeCheck(ROUTES[rank])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    expert = torch.randn(8, 3)
    for step in range(1, 4001):
        state = torch.randn(2048, 8)
        loss = (model(state) - torch.tanh(state @ expert)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        sync(model)
        optimizer.step()
        if step % 60 == 0:
            name, within, last = check(model.gain)
            print(f"[{rank}] step {step} loss {loss.item():.4f} {name}: {'ok' if within else 'outside'} ({last})", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
