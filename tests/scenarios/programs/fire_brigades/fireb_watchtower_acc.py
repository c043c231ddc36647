"""Watchtower classifier (smoke, cloud, dust, nothing) with accelerate."""
import argparse
import os
import tempfile

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def build_frames(n=9000, seed=0):
    g = torch.Generator().manual_seed(seed)
    frames = torch.randn(n, 3 * 16 * 16, generator=g)
    labels = frames[:, :64].sum(1).abs().mul(0.25).long().clamp(max=3)
    return TensorDataset(frames, labels)


class Tower(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(768, width), nn.ReLU(), nn.LayerNorm(width))
        self.head = nn.Linear(width, 4)

    def forward(self, frames):
        return self.head(self.encoder(frames))


def export(accelerator, model, folder, step):
    """Weights for the edge box at the tower."""
    path = os.path.join(folder, f"tower_{step}")
    os.makedirs(path, exist_ok=True)
    accelerator.wait_for_everyone()
    unwrapped = accelerator.unwrap_model(model)
    state = {k: v for k, v in unwrapped.state_dict().items() if not k.startswith("aux")}
    torch.save(state, os.path.join(path, "weights.pt"))
    accelerator.print(f"exported {path}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--export-steps", type=int, default=400)
    parser.add_argument("--epochs", type=int, default=20)
    args = parser.parse_args()
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    set_seed(4)
    folder = os.path.join(tempfile.gettempdir(), "watchtower")
    loader = DataLoader(build_frames(), batch_size=20, shuffle=True)
    model = Tower()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    step = 0
    for epoch in range(args.epochs):
        for frames, labels in loader:
            logits = model(frames)
            loss = nn.functional.cross_entropy(logits, labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step % 50 == 0:
                accelerator.print(f"step {step} loss {loss.item():.3f}")
            if accelerator.sync_gradients and accelerator.is_main_process and step % args.export_steps == 0:
                export(accelerator, model, folder, step)
    accelerator.end_training()


if __name__ == "__main__":
    main()
