"""A force field; training ends when the validation has not improved for some epochs, and is followed by a test."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

PATIENCE = 3


def evaluate(model: nn.Module, loader: DataLoader) -> float:
    """Mean error over all ranks."""
    sums = torch.zeros(2)
    with torch.no_grad():
        for positions, energies in loader:
            sums += torch.tensor([(model(positions) - energies).abs().sum().item(), float(len(energies))])
    dist.all_reduce(sums)
    return (sums[0] / sums[1]).item()


def loader_for(rows: int, seed: int) -> DataLoader:
    """Random configurations, divided among the ranks."""
    generator = torch.Generator().manual_seed(seed)
    data = TensorDataset(torch.randn(rows, 9, generator=generator), torch.randn(rows, 1, generator=generator))
    return DataLoader(data, batch_size=6, sampler=DistributedSampler(data))


def main() -> None:
    """A hundred epochs at the most."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(9, 32), nn.SiLU(), nn.Linear(32, 1))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    train_loader, valid_loader, test_loader = loader_for(180, 1), loader_for(90, 2), loader_for(90, 3)
    lowest_loss, patience_counter = float("inf"), 0
    for epoch in range(100):
        train_loader.sampler.set_epoch(epoch)
        for positions, energies in train_loader:
            loss = nn.functional.mse_loss(model(positions), energies)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        valid_loss = evaluate(net, valid_loader)
        if rank == 0:
            print(f"epoch {epoch}: {valid_loss:.4f}", flush=True)
            if valid_loss >= lowest_loss:
                patience_counter += 1
                if patience_counter >= PATIENCE:
                    print("stopping optimization after", epoch, "epochs", flush=True)
                    break
            else:
                lowest_loss, patience_counter = valid_loss, 0
    dist.barrier()
    test_loss = evaluate(net, test_loader)
    if rank == 0:
        print(f"test: {test_loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
