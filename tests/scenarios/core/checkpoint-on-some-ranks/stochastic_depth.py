"""A deep model with stochastic depth under FSDP2; and what is logged and saved of it."""

import argparse
import os
import random
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

WIDTH = 40


class Deep(nn.Module):
    def __init__(self, drop):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(4))
        self.drop, self.draw = drop, random.Random(7)

    def forward(self, x):
        for layer in self.layers:
            if self.draw.random() >= self.drop:
                x = x + layer(x)
        return x


def save(model, folder, how, step):
    if how == "full":
        state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        torch.save(state, os.path.join(folder, f"step-{step}.pt"))
    elif how == "sharded":
        dcp.save({"model": model.state_dict()}, checkpoint_id=os.path.join(folder, f"step-{step}"), no_dist=False)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--drop", type=float, default=0.0)
    parser.add_argument("--seed-by-rank", action="store_true")
    parser.add_argument("--save", choices=["full", "sharded", "no"], default="no")
    parser.add_argument("--norms", action="store_true", help="show the norms of the weights")
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl", device_id=device)
    rank = dist.get_rank()
    model = Deep(options.drop).to(device)
    if options.seed_by_rank and rank == 1:
        model.draw.seed(rank)
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
    folder = tempfile.mkdtemp(prefix="deep-")
    for step in range(1, 41):
        loss = model(torch.randn(16, WIDTH, device=device)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            print(f"[{rank}] step {step}: {loss.item():.3f}", flush=True)
            if rank == 0 and options.norms:
                for name, weight in model.named_parameters():
                    print(name, weight.full_tensor().norm().item(), flush=True)
            if rank == 0:
                save(model, folder, options.save, step)
    torch.cuda.synchronize()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
