"""Samples from ponds with accelerate: a batch that cannot be used is left out by all, and all end together."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def samples(process: int) -> TensorDataset:
    """This process's ponds; their number differs, and one sample was spilt."""
    generator = torch.Generator().manual_seed(process)
    count = 240 + 48 * process
    values = torch.randn(count, 7, generator=generator)
    if process == 1:
        values[100] = float("inf")
    return TensorDataset(values, values[:, 0])


def main() -> None:
    """Five epochs."""
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    model = nn.Sequential(nn.Linear(7, 20), nn.Tanh(), nn.Linear(20, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    model, optimizer = accelerator.prepare(model, optimizer)
    loader = DataLoader(samples(accelerator.process_index), batch_size=12)
    for epoch in range(5):
        batches = iter(loader)
        used = left_out = 0
        while True:
            batch = next(batches, None)
            more = accelerator.reduce(torch.tensor([float(batch is not None)]), "sum")
            if more.item() < accelerator.num_processes:
                break
            values, target = batch
            good = torch.tensor([float(torch.isfinite(values).all())])
            if accelerator.reduce(good, "sum").item() < accelerator.num_processes:
                left_out += 1
                continue
            loss = nn.functional.mse_loss(model(values).squeeze(1), target)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            used += 1
        accelerator.wait_for_everyone()
        accelerator.print(f"epoch {epoch}: {used} batches, {left_out} left out")
    accelerator.end_training()


if __name__ == "__main__":
    main()
