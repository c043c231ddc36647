"""accelerate without ``even_batches``: the samples do not divide by the ranks, so neither do the batches."""

import argparse

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    """Three epochs with the mean loss after each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(even_batches=False))
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(torch.randn(options.samples, 8)), batch_size=2)
    net = torch.nn.Linear(8, 8)
    model, optimizer, loader = accelerator.prepare(net, torch.optim.SGD(net.parameters(), 0.1), loader)
    for epoch in range(3):
        losses = []
        for (inputs,) in loader:
            loss = (model(inputs) - inputs).abs().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        epoch_loss = accelerator.gather(torch.stack(losses).mean())
        accelerator.print(f"epoch {epoch}: {epoch_loss.mean().item():.4f}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
