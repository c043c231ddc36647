"""All ranks compile the same model at their first step, which takes a while on each; then they train.

Run by ``torchrun --nproc-per-node 2``.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Five steps of a compiled model."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    layers: list[nn.Module] = []
    for _ in range(5):
        layers += [nn.Linear(24, 24), nn.GELU(), nn.LayerNorm(24), nn.Softmax(-1)]
    model = DistributedDataParallel(torch.compile(nn.Sequential(*layers)))
    for step in range(5):
        model(torch.randn(6, 24)).square().sum().backward()
        print(f"[rank {dist.get_rank()}] step {step}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
