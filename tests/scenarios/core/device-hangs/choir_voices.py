"""Separates the voices of a choir with a sharded network (FSDP2)."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

SAMPLES, VOICES = 128, 4


class Separator(nn.Module):
    def __init__(self, depth=3):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(SAMPLES, SAMPLES) for _ in range(depth))
        self.masks = nn.Linear(SAMPLES, SAMPLES * VOICES)

    def forward(self, sound):
        for layer in self.layers:
            sound = sound + torch.tanh(layer(sound))
        masks = self.masks(sound).view(len(sound), VOICES, SAMPLES).softmax(1)
        return masks * sound.unsqueeze(1)


def rehearse(model, optimizer, device, pieces):
    for piece in range(pieces):
        mixed = torch.randn(6, SAMPLES, device=device)
        apart = model(mixed)
        loss = (apart.sum(1) - mixed).square().mean() + apart.abs().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield piece, loss


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    model = Separator().to(device)
    for layer in (*model.layers, model.masks):
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    for piece, loss in rehearse(model, optimizer, device, 600):
        if piece % 8 == 0 and dist.get_rank() == 0:
            print(f"piece {piece}: {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
