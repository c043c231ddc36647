"""DDP: which of twelve birds is calling, with torchmetrics and a progress bar."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torchmetrics.classification import MulticlassAccuracy
from tqdm import tqdm

BIRDS = 12
SHOW_EVERY = 25


def recordings() -> TensorDataset:
    """Mel bands of a second each, made up."""
    generator = torch.Generator().manual_seed(5)
    bands = torch.randn(6000, 40, generator=generator)
    return TensorDataset(bands, bands[:, :BIRDS].argmax(1))


def main() -> None:
    """Four epochs."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    calls = recordings()
    sampler = DistributedSampler(calls, drop_last=True)
    loader = DataLoader(calls, batch_size=20, sampler=sampler, drop_last=True)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, BIRDS)))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    accuracy = MulticlassAccuracy(num_classes=BIRDS, average="micro")

    for epoch in range(4):
        sampler.set_epoch(epoch)
        bar = tqdm(total=len(loader), desc=f"epoch {epoch}", mininterval=1) if rank == 0 else None
        for number, (bands, birds) in enumerate(loader, 1):
            scores = model(bands)
            loss = nn.functional.cross_entropy(scores, birds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            accuracy.update(scores.detach(), birds)
            if bar is not None:
                bar.update(1)
                if number % SHOW_EVERY == 0:
                    bar.set_postfix(loss=loss.item(), accuracy=accuracy.compute().item())
        if bar is not None:
            bar.close()
        accuracy.reset()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
