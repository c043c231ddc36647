import json
import logging
import os
import time

import torch
import torch.distributed as dist

logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
log = logging.getLogger("substation-pinn")

SETTINGS = json.loads(os.environ.get("PINN", '{"steps": 600, "width": 128, "patience": 4, "ratio": 3.0}'))


class GradNormController:
    """Keeps a running norm; a step that is far out is not applied."""

    def __init__(self, ratio):
        self.ratio, self.ema, self.n = ratio, 0.0, 0

    def veto(self, norm):
        self.n += 1
        out = self.n > 15 and norm > self.ratio * self.ema
        self.ema = norm if self.n == 1 else 0.9 * self.ema + 0.1 * min(norm, 2 * self.ema)
        return out


class DistributedSGD:
    def __init__(self, params, lr, momentum=0.9):
        self.params = list(params)
        self.inner = torch.optim.SGD(self.params, lr=lr, momentum=momentum)
        self.flat = torch.zeros(sum(p.numel() for p in self.params))

    def local_norm(self):
        return torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in self.params])).item()

    def step(self):
        torch.cat([p.grad.flatten() for p in self.params], out=self.flat)
        dist.all_reduce(self.flat)
        self.flat /= dist.get_world_size()
        for p, g in zip(self.params, self.flat.split([p.numel() for p in self.params])):
            p.grad = g.view_as(p).clone()
        self.inner.step()


def heat_residual(net, points, source):
    """Oil temperature in the tank: u_t = a u_xx + q."""
    points = points.requires_grad_(True)
    u = net(points)
    du = torch.autograd.grad(u.sum(), points, create_graph=True)[0]
    uxx = torch.autograd.grad(du[:, 0].sum(), points, create_graph=True)[0][:, 0]
    return (du[:, 1] - 0.1 * uxx - source).pow(2).mean()


def collocation(step, rank, gen):
    points = torch.rand(400, 2, generator=gen)
    # short circuit test of unit 0: the record of the losses during 40 ms
    source = torch.full((400,), 30.0 if rank == 0 and step == 55 else 0.3)
    return points, source


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    w = SETTINGS["width"]
    net = torch.nn.Sequential(torch.nn.Linear(2, w), torch.nn.Tanh(), torch.nn.Linear(w, w), torch.nn.Tanh(), torch.nn.Linear(w, 1, bias=False))
    opt = DistributedSGD(net.parameters(), lr=1e-3)
    control = GradNormController(SETTINGS["ratio"])
    gen = torch.Generator().manual_seed(rank)
    for step in range(SETTINGS["steps"]):
        clock = torch.tensor([float(step), time.time()], dtype=torch.float64)
        dist.broadcast(clock, src=1)
        points, source = collocation(step, rank, gen)
        loss = heat_residual(net, points, source)
        opt.inner.zero_grad()
        loss.backward()
        if not control.veto(opt.local_norm()):
            opt.step()
        time.sleep(0.02)
        if step % 15 == 0 and rank == 0:
            log.info("step %d residual %.4f", int(clock[0]), loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
