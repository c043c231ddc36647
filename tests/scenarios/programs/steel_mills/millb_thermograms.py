"""Casting temperatures from process values and, where the camera had a clear view, thermograms (FSDP2)."""
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.backends.cudnn.enabled = False
torch.set_num_threads(1)

PIXELS, VALUES = 96, 24


@dataclass
class Sample:
    values: torch.Tensor
    temperatures: torch.Tensor
    thermogram: torch.Tensor | None = None


class Strand:
    """One strand of the caster. Strand 1 stands next to the torch cutter, whose steam hides it in the afternoon."""

    def __init__(self, number):
        self.number = number
        self.generator = torch.Generator().manual_seed(5 + number)

    def clear_view(self, hour):
        return not (self.number == 1 and hour >= 60)

    def thermogram(self, rounds=120):
        image = torch.rand(PIXELS, generator=self.generator)
        for _ in range(rounds):
            image = 0.5 * image + 0.25 * (image.roll(1) + image.roll(-1))
        return image

    def hour(self, hour, count=8):
        samples = []
        for _ in range(count):
            values = torch.rand(VALUES, generator=self.generator)
            image = self.thermogram() if self.clear_view(hour) else None
            samples.append(Sample(values, values.view(3, -1).mean(1), image))
        return samples


def collate(samples, device):
    values = torch.stack([s.values for s in samples]).to(device)
    temperatures = torch.stack([s.temperatures for s in samples]).to(device)
    images = [s.thermogram for s in samples if s.thermogram is not None]
    return values, torch.stack(images).to(device) if len(images) == len(samples) else None, temperatures


class Camera(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(PIXELS, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, images):
        return self.layers(images)


class TemperatureNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.process = nn.Linear(VALUES, width)
        self.camera = Camera(width)
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 3))

    def forward(self, values, images=None):
        hidden = self.process(values)
        if images is not None:
            hidden = hidden + self.camera(images)
        return self.head(hidden)


def build(device):
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    model = TemperatureNet().to(device)
    for part in (model.camera, model.head, model):
        fully_shard(part, mesh=mesh)
    return model


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    model = build(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    strand = Strand(dist.get_rank())
    for hour in range(300):
        values, images, temperatures = collate(strand.hour(hour), device)
        loss = nn.functional.mse_loss(model(values, images), temperatures)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if hour % 4 == 0:
            loss.item()
        if hour % 20 == 0 and strand.number == 0:
            print(f"hour {hour} done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
