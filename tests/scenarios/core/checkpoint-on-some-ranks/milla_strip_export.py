"""Surface classes of hot strip, trained with FSDP2; the best model so far goes to the line's inspection computer."""
import json
import os
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

CLASSES = ["scale", "scratch", "edge crack", "sliver", "roll mark", "clean"]


def is_main():
    return dist.get_rank() == 0


class PatchEncoder(nn.Module):
    def __init__(self, pixels=256, width=192, depth=2):
        super().__init__()
        self.stem = nn.Linear(pixels, width)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(depth))
        self.classes = nn.Linear(width, len(CLASSES))

    def forward(self, patches):
        hidden = self.stem(patches)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.classes(hidden)


class StripFeed:
    """Patches as the line camera delivers them: line by line, flat-field corrected."""

    def __init__(self, rank, batch):
        self.generator = torch.Generator().manual_seed(1000 + rank)
        self.batch = batch
        self.flat = torch.linspace(0.8, 1.2, 256)

    def __next__(self):
        lines = torch.rand(self.batch, 24, 256, generator=self.generator) * self.flat
        patch = lines.sort(dim=1).values[:, 12]
        return patch, torch.randint(len(CLASSES), (self.batch,), generator=self.generator)


class InspectionExport:
    """Writes what the inspection computer loads: one plain file of full tensors and a card."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def tensors(self, model):
        for name, parameter in model.named_parameters():
            full = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
            yield name, full.detach().cpu()

    def publish(self, model, step):
        target = self.folder / f"strip-{step:05d}.pt"
        weights = {name: tensor for name, tensor in self.tensors(model)}  # noqa: C416
        torch.save(weights, target)
        card = {"step": step, "classes": CLASSES, "parameters": sum(t.numel() for t in weights.values()), "time": time.time()}
        target.with_suffix(".json").write_text(json.dumps(card))
        print("published", target, flush=True)


def train(steps=400, batch=64, publish_from=100, publish_every=100):
    rank = dist.get_rank()
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    model = PatchEncoder().cuda()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    feed = StripFeed(rank, batch)
    export = InspectionExport(tempfile.mkdtemp(prefix="strip")) if is_main() else None
    for step in range(1, steps + 1):
        patches, labels = next(feed)
        loss = criterion(model(patches.cuda()), labels.cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 20 == 0:
            value = loss.item()
            if is_main():
                print(f"step {step} loss {value:.3f}", flush=True)
        if export and step >= publish_from and step % publish_every == 0:
            export.publish(model, step)
    dist.barrier()


if __name__ == "__main__":
    torch.backends.cudnn.enabled = False
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    train()
    dist.destroy_process_group()
