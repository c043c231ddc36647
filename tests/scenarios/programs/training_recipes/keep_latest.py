"""Accelerate: the latest weights are kept every 25 steps, by the main process."""

import tempfile
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def codebook() -> nn.Module:
    """A small autoencoder."""
    return nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 16))


def main() -> None:
    """Two hundred steps."""
    accelerator = Accelerator(cpu=True)
    folder = Path(tempfile.mkdtemp())
    torch.manual_seed(0)
    model, data = codebook(), TensorDataset(torch.randn(4800, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(data, batch_size=8, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for step, (x,) in enumerate(loader, start=1):
        loss = (model(x) - x).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            accelerator.print(f"{step}: loss {loss.item():.4f}")
        if accelerator.is_main_process and step % 25 == 0:
            accelerator.wait_for_everyone()
            torch.save(accelerator.unwrap_model(model).state_dict(), folder / f"autoencoder.{step}.pt")
    accelerator.end_training()


if __name__ == "__main__":
    main()
