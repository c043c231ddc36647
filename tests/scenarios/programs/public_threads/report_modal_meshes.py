"""A multimodal model on disjoint ranks: each modality has its own mesh, one schedule runs over all of them."""

import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)


@dataclass
class ModalityPlan:
    name: str
    ranks: list
    tensor_parallel: int = 1


@dataclass
class ModalMesh:
    """The process groups of one modality."""

    plan: ModalityPlan
    groups: dict = field(default_factory=dict)

    def build(self):
        ranks, size = self.plan.ranks, self.plan.tensor_parallel
        self.groups["all"] = dist.new_group(ranks)
        for start in range(0, len(ranks), size):
            if size == 1:
                break
            members = ranks[start : start + size]
            group = dist.new_group(members)
            if dist.get_rank() in members:
                self.groups["tensor"] = group
        return self


class ParallelizationPlan:
    def __init__(self, modalities):
        self.modalities = modalities

    def materialize(self):
        rank = dist.get_rank()
        for plan in self.modalities:
            if rank not in plan.ranks:
                continue
            mesh = ModalMesh(plan).build()
            print(f"rank {rank}: {plan.name} mesh with groups {sorted(mesh.groups)}", flush=True)
            self.mesh = mesh
        dist.barrier()  # the meshes are complete
        return self

    def schedule_group(self):
        everyone = sorted(rank for plan in self.modalities for rank in plan.ranks)
        return dist.new_group(everyone)


def warm_up(rounds):
    """Both encoders are pre-trained on captions before they are put together."""
    torch.manual_seed(dist.get_rank())
    encoder = nn.Linear(20, 8)
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.01)
    for index in range(rounds):
        loss = (encoder(torch.randn(16, 20)) - 1.0).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        time.sleep(0.03)
        if dist.get_rank() == 0 and index % 10 == 0:
            print(f"warm-up {index} {mean.item() / dist.get_world_size():.3f}", flush=True)
    return encoder


def train(encoder, mesh, schedule, steps):
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.01)
    for _ in range(steps):
        features = encoder(torch.randn(16, 20))
        total = features.detach().mean(0)
        dist.all_reduce(total, group=schedule)
        loss = (features - total).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for parameter in encoder.parameters():
            dist.all_reduce(parameter.grad, group=mesh.groups["all"])
        optimizer.step()


def main():
    dist.init_process_group("gloo")
    encoder = warm_up(40)
    plan = ParallelizationPlan(
        [ModalityPlan("vision", [0]), ModalityPlan("language", [1, 2, 3], tensor_parallel=3)]
    ).materialize()
    schedule = plan.schedule_group()
    train(encoder, plan.mesh, schedule, 100)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
