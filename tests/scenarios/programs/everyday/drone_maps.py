"""Lightning Fabric: land cover from drone photos; a terminal can be attached to change things while it runs."""

import os
import tempfile

import torch
from lightning.fabric import Fabric
from torch import nn

PIPE = os.path.join(tempfile.gettempdir(), f"drone_maps_{os.environ.get('MASTER_PORT', 0)}")


def orders():
    """What the operator has written since the last time, e.g. `echo lr 0.01 > /tmp/drone_maps_29500`."""
    with open(PIPE) as pipe:
        return [line.split() for line in pipe]


def apply(optimizer, lines):
    for word, value in lines:
        if word == "lr":
            for group in optimizer.param_groups:
                group["lr"] = float(value)


def batches(count):
    for _ in range(count):
        photo = torch.rand(4, 3, 10, 10)
        yield photo, photo.mean((2, 3)).argmax(1)


def main():
    fabric = Fabric(accelerator="cpu", devices=3, strategy="ddp")
    fabric.launch()
    fabric.seed_everything(11)
    model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.GELU(), nn.Flatten(), nn.Linear(384, 3))
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.05))
    if fabric.is_global_zero and not os.path.exists(PIPE):
        os.mkfifo(PIPE)
    for epoch in range(5):
        for photo, cover in batches(15):
            loss = nn.functional.cross_entropy(model(photo), cover)
            optimizer.zero_grad()
            fabric.backward(loss)
            optimizer.step()
        fabric.print(f"epoch {epoch}: {loss.item():.3f}")
        if fabric.is_global_zero and epoch > 0:
            apply(optimizer, orders())
    if fabric.is_global_zero:
        os.remove(PIPE)


if __name__ == "__main__":
    main()
