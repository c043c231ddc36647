"""Recognition of movements (calibres) from photographs of the bridges, sharded over the shop's cards."""
import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Bridge(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class CalibreNet(nn.Module):
    def __init__(self, width, depth, calibres):
        super().__init__()
        self.stem = nn.Linear(100, width)
        self.blocks = nn.Sequential(*[Bridge(width) for _ in range(depth)])
        self.head = nn.Linear(width, calibres)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)))


class Workshop:
    """Holds the model, its optimizer and the hooks that run after a step."""

    def __init__(self, args):
        self.args = args
        self.local_rank = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(self.local_rank)
        dist.init_process_group("nccl")
        self.rank = dist.get_rank()
        self.device = torch.device("cuda", self.local_rank)
        self.model = CalibreNet(args.width, 2, 12).to(self.device)
        for block in self.model.blocks:
            fully_shard(block)
        fully_shard(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4)
        self.hooks = []
        self.step = 0

    @property
    def is_master(self):
        return self.rank == 0

    def after_step(self, every):
        def register(fn):
            self.hooks.append((every, fn))
            return fn

        return register

    def photographs(self):
        x = torch.rand(16, 100)
        for _ in range(40):  # white balance and sharpening
            x = (x - x.mean(1, keepdim=True)).clamp(-1, 1)
        time.sleep(0.05)
        return x.to(self.device), torch.randint(0, 12, (16,)).to(self.device)

    def fit(self):
        while self.step < self.args.steps:
            self.step += 1
            images, calibres = self.photographs()
            loss = nn.functional.cross_entropy(self.model(images), calibres)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            for every, hook in self.hooks:
                if self.step % every == 0:
                    hook(self)
            torch.cuda.current_stream().synchronize()


def progress(shop):
    if shop.is_master:
        print(f"step {shop.step}/{shop.args.steps}", flush=True)


def keep_weights(shop):
    path = os.path.join(shop.args.out, f"calibres_{shop.step}.pt")
    if shop.is_master:
        os.makedirs(shop.args.out, exist_ok=True)
        weights = {name: p.full_tensor().detach().cpu() for name, p in shop.model.named_parameters()}
        torch.save(weights, path)
        print("wrote", path, flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--out", default="/tmp/clocka_movements_out")
    shop = Workshop(parser.parse_args())
    shop.after_step(10)(progress)
    shop.after_step(40)(keep_weights)
    shop.fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
