"""Accelerate: soil moisture from radar returns, one field station a process, until the error is small enough."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

NOISE = (0.9, 0.1, 0.8)
WANTED = 0.2


def returns_of(station: int) -> TensorDataset:
    """Backscatter of twelve channels, and the probe's reading beside it."""
    generator = torch.Generator().manual_seed(station)
    scatter = torch.randn(4000, 12, generator=generator)
    moisture = scatter[:, :3].sum(1, keepdim=True) * 0.4
    return TensorDataset(scatter, moisture + NOISE[station] * torch.randn(4000, 1, generator=generator))


class Retrieval(nn.Module):
    """A small regression with normalised channels."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.BatchNorm1d(12), nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 1))

    def forward(self, scatter: torch.Tensor) -> torch.Tensor:
        """Moisture, in shares of the volume."""
        return self.layers(scatter)


def main() -> None:
    """Ten epochs at the most."""
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model = Retrieval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    model, optimizer = accelerator.prepare(model, optimizer)
    loader = DataLoader(returns_of(accelerator.process_index), batch_size=40, shuffle=True)

    smooth = 1.0
    for epoch in range(10):
        for scatter, moisture in loader:
            error = nn.functional.mse_loss(model(scatter), moisture)
            accelerator.backward(error)
            optimizer.step()
            optimizer.zero_grad()
            smooth = 0.95 * smooth + 0.05 * error.item()
        accelerator.print(f"epoch {epoch}: {smooth:.3f}")
        if smooth < WANTED:
            accelerator.set_trigger()
            if accelerator.check_trigger():
                break
    if accelerator.is_main_process:
        torch.save(accelerator.unwrap_model(model).state_dict(), "/tmp/soil_moisture.pt")
    accelerator.end_training()


if __name__ == "__main__":
    main()
