"""Bells by their sound; the first process evaluates thoroughly while the others wait for its decision."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def evaluate(model, sounds, labels):
    """With noise of many strengths, one after the other."""
    begun, right, trials = time.monotonic(), 0, 0
    while time.monotonic() - begun < 3.5:
        noisy = sounds + torch.rand(1) * torch.randn_like(sounds)
        with torch.no_grad():
            right += (model(noisy).argmax(1) == labels).sum().item()
        trials += len(labels)
    return right / trials


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(2)
    sounds, labels = torch.randn(240, 60), torch.randint(0, 6, (240,))
    sampler = DistributedSampler(range(240))
    loader = DataLoader(TensorDataset(sounds, labels), batch_size=10, sampler=sampler)
    net = nn.Sequential(nn.Linear(60, 40), nn.ReLU(), nn.Linear(40, 6))
    model = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        enough = torch.zeros(1)
        if rank == 0:
            accuracy = evaluate(net, sounds, labels)
            print(f"epoch {epoch}: {accuracy:.3f}", flush=True)
            enough += accuracy > 0.95
        dist.barrier()
        dist.broadcast(enough, src=0)
        if enough:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
