"""Trains interpreters for courts, one language after another; the cards of a language make a mesh."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

LANGUAGES = ["ar", "fa", "ti", "uk", "so"]
#: Languages for which a rank has documents at home. A language without any is nobody's business there.
AT_HOME = [{"ar", "fa", "ti", "uk", "so"}, {"ar", "fa", "ti", "uk", "so"}, {"ar", "fa", "ti", "so"}]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--groups", choices=["mesh", "new"], default="mesh")
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device if options.groups == "mesh" else None)
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(nn.Linear(32, 32).to(device), device_ids=[device.index])
    for language in LANGUAGES:
        if language not in AT_HOME[rank % len(AT_HOME)]:
            continue
        if options.groups == "mesh":
            group = init_device_mesh("cuda", (world,), mesh_dim_names=(language,)).get_group()
        else:
            group = dist.new_group(list(range(world)))
        for _ in range(12):
            loss = model(torch.randn(8, 32, device=device)).square().mean()
            loss.backward()
            model.zero_grad()
        heard = torch.ones((), device=device)
        dist.all_reduce(heard, group=group)
        print(f"[{rank}] {language}: heard by {heard.item():.0f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
