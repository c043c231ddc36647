"""Image-text pretraining on our engine. `python hands-engine-hooks.py` starts one process a device, each with its own seeds."""

import os
import socket
import subprocess
import sys
import time

import torch
import torch.distributed as dist

HOOKS = {}


def register(name):
    def add(function):
        HOOKS[name] = function
        return function

    return add


@register("grad_norm")
def grad_norm(engine):
    total = sum(p.grad.square().sum() for p in engine.model.parameters()).reshape(1)
    dist.all_reduce(total)
    engine.log["grad_norm"] = total.sqrt().item()


@register("queue_fill")
def queue_fill(engine):
    fills = [torch.zeros(2) for _ in range(dist.get_world_size())]
    dist.all_gather(fills, torch.tensor([float(engine.step), 0.5]))
    engine.log["queue_fill"] = torch.stack(fills)[:, 1].mean().item()


@register("snapshot_fence")
def snapshot_fence(engine):
    dist.barrier()
    engine.log["fence"] = time.monotonic()


class Engine:
    def __init__(self, model, hooks):
        self.model, self.hooks, self.step, self.log = model, hooks, 0, {}
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def run(self, steps):
        for self.step in range(steps):
            images, texts = torch.randn(16, 32), torch.randn(16, 32)
            loss = (self.model(images) - texts).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            time.sleep(0.2)
            if self.step % 10 == 9:
                for name in self.hooks:
                    HOOKS[name](self)
                print(f"step {self.step} {self.log}", flush=True)


def worker():
    torch.set_num_threads(1)
    torch.manual_seed(int(os.environ["PYTHONHASHSEED"]))
    dist.init_process_group("gloo")
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 32))
    enabled = set("grad_norm,queue_fill,snapshot_fence".split(","))
    Engine(model, enabled).run(60)
    dist.destroy_process_group()


def launch(world, seed):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    children = []
    for rank in range(world):
        env = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1"}
        env |= {"MASTER_PORT": str(port), "PYTHONHASHSEED": str(seed + rank)}
        children.append(subprocess.Popen([sys.executable, __file__], env=env))
    return max(child.wait() for child in children)


if __name__ == "__main__":
    if "RANK" in os.environ:
        worker()
    else:
        sys.exit(launch(3, int(sys.argv[1]) if len(sys.argv) > 1 else 1))
