"""accelerate with gradient accumulation and a scheduler; ranks differ in speed, and one validates on its own model copy."""

import copy

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    """Three epochs; the number of samples does not divide."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=3)
    torch.manual_seed(0)
    model = nn.Linear(5, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(torch.randn(157, 5)), batch_size=4, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(3):
        for (x,) in loader:
            with accelerator.accumulate(model):
                accelerator.backward(model(x).square().mean())
                optimizer.step()
                optimizer.zero_grad()
        if accelerator.process_index == 2:
            local = copy.deepcopy(accelerator.unwrap_model(model))
            total = sum(local(torch.randn(64, 5)).sum().item() for _ in range(3000))
            print(f"epoch {epoch}: {total:.1f}", flush=True)
        everyone = accelerator.gather_for_metrics(x)
        accelerator.print(f"epoch {epoch}: {len(everyone)} in the last batch")
    accelerator.end_training()


if __name__ == "__main__":
    main()
