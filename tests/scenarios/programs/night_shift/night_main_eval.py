"""accelerate: only the main process evaluates, with a plain copy of the model; everyone waits for it."""
import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def evaluate(net, batches):
    net.eval()
    correct = total = 0
    with torch.no_grad():
        for index, (x, y) in enumerate(batches):
            for _ in range(40):  # test-time augmentation
                correct += (net(x + 0.01 * torch.randn_like(x)).argmax(1) == y).sum().item()
                total += len(y)
            time.sleep(0.15)
            if index % 20 == 0:
                print(f"evaluated {index} batches", flush=True)
    net.train()
    return correct / total


def main():
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    x = torch.randn(1200, 20)
    y = (x[:, 0] > x[:, 1]).long()
    train = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
    test = DataLoader(TensorDataset(x[:960], y[:960]), batch_size=16)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    model, optimizer, train = accelerator.prepare(model, optimizer, train)
    for epoch in range(2):
        for x_batch, y_batch in train:
            loss = nn.functional.cross_entropy(model(x_batch), y_batch)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            time.sleep(0.02)
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            accuracy = evaluate(accelerator.unwrap_model(model), test)
            print(f"epoch {epoch} loss {loss.item():.3f} accuracy {accuracy:.3f}", flush=True)
        accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
