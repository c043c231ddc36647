"""Two crews of two ranks, each with a model of its own; one has three times as much to do."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Each crew its own number of steps; the weights are compared at the end."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    crews = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    crew = rank // 2
    torch.manual_seed(crew)
    model = DistributedDataParallel(nn.Linear(20, 20), process_group=crews[crew])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range((400, 1200)[crew]):
        loss = model(torch.randn(8, 20)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            dist.barrier(group=crews[crew])
    norms = [None] * dist.get_world_size()
    dist.all_gather_object(norms, model.module.weight.norm().item())
    if rank == 0:
        print(norms)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
