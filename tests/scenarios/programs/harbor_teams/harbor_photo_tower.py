"""FSDP2: damage estimates of motor claims from the report and, where there is one, a photo's embedding."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

WIDTH = 48


@dataclass
class Claims:
    report: torch.Tensor
    photo: torch.Tensor | None
    damage: torch.Tensor


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(x))


class DamageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.report, self.photo, self.mixer = Encoder(), Encoder(), Encoder()
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, claims: Claims) -> torch.Tensor:
        hidden = self.report(claims.report)
        if claims.photo is not None:
            hidden = hidden + self.photo(claims.photo)
        return self.head(self.mixer(hidden)).squeeze(-1)


class Office:
    """The claims of one office. Each has photos nearly always; hail storms bring in batches of reports by phone."""

    def __init__(self, number: int) -> None:
        self.generator = torch.Generator().manual_seed(number)
        self.storm = {1: range(130, 134)}.get(number, ())

    def batch(self, step: int, size: int = 64) -> Claims:
        report = torch.randn(size, WIDTH, generator=self.generator)
        photo = None if step in self.storm else torch.randn(size, WIDTH, generator=self.generator)
        return Claims(report, photo, report[:, :4].sum(dim=1))


def shard(model: nn.Module) -> nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in (model.report, model.photo, model.mixer):
        fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)  # gloo has no mean
    return model


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model, office = shard(DamageModel()), Office(dist.get_rank())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for step in range(20_000):
        claims = office.batch(step)
        loss = nn.functional.mse_loss(model(claims), claims.damage)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 100 == 0 and dist.get_rank() == 0:
            print(f"step {step}: {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
