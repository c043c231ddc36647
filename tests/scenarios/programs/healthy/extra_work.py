"""accelerate: each epoch another rank has a chore (an upload, a plot) that takes three seconds; the others wait for it."""

import time

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset


def chore(accelerator: Accelerator, epoch: int) -> None:
    """Three seconds of half sleep, half work, on one rank."""
    if accelerator.process_index == epoch % accelerator.num_processes:
        end = time.monotonic() + 3
        while time.monotonic() < end:
            torch.randn(200, 200).matmul(torch.randn(200, 200))
            time.sleep(0.01)
    accelerator.wait_for_everyone()


def main() -> None:
    """Four epochs."""
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    net = torch.nn.Linear(8, 1)
    loader = DataLoader(TensorDataset(torch.randn(120, 8)), batch_size=4)
    model, optimizer, loader = accelerator.prepare(net, torch.optim.SGD(net.parameters(), 0.01), loader)
    for epoch in range(4):
        for (inputs,) in loader:
            accelerator.backward((model(inputs) - inputs.sum(1, keepdim=True)).square().mean())
            optimizer.step()
            optimizer.zero_grad()
        chore(accelerator, epoch)
        accelerator.print(f"epoch {epoch}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
