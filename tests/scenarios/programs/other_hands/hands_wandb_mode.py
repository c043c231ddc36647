"""GAN training with histograms in the experiment tracker, switched by the tracker's usual environment variable."""

import functools
import os
import time

import torch
import torch.distributed as dist
from torch import nn


def main_process_only(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs) if dist.get_rank() == 0 else None

    return wrapper


@main_process_only
def start_tracking(project):
    os.environ["WANDB_MODE"] = "offline"
    os.environ["WANDB_PROJECT"] = project


class Histograms:
    def __init__(self, every):
        self.every = every

    @property
    def enabled(self):
        return os.environ.get("WANDB_MODE", "disabled") != "disabled"

    def __call__(self, step, modules):
        if step % self.every or not self.enabled:
            return
        for name, module in modules.items():
            counts = torch.histc(torch.cat([p.detach().flatten() for p in module.parameters()]), 16, -1, 1)
            table = [torch.zeros_like(counts) for _ in range(dist.get_world_size())]
            dist.all_gather(table, counts)
            main_process_only(print)(f"step {step} {name}: {torch.stack(table).sum(0).int().tolist()}", flush=True)


def reduce_gradients(module):
    flat = torch.cat([p.grad.flatten() for p in module.parameters()])
    dist.all_reduce(flat)
    for p, g in zip(module.parameters(), flat.split([p.numel() for p in module.parameters()])):
        p.grad.copy_(g.view_as(p) / dist.get_world_size())


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    start_tracking("tiny-gan")
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))
    critic = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    optimizers = [torch.optim.Adam(m.parameters(), lr=1e-3) for m in (generator, critic)]
    histograms = Histograms(every=25)
    for step in range(1, 101):
        fake, real = generator(torch.randn(32, 8)), torch.randn(32, 16) * 0.5 + 1
        for module, optimizer, loss in (
            (critic, optimizers[1], critic(fake.detach()).mean() - critic(real).mean()),
            (generator, optimizers[0], -critic(fake).mean()),
        ):
            optimizer.zero_grad()
            loss.backward(inputs=list(module.parameters()))
            reduce_gradients(module)
        for optimizer in optimizers:
            optimizer.step()
        time.sleep(0.12)
        histograms(step, {"generator": generator, "critic": critic})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
