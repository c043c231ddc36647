"""Image classifier on DDP with an evaluation after each epoch that collects the scores of all ranks."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


def training_data(steps: int, rank: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(rank)
    return TensorDataset(torch.rand(steps * 8, 48, generator=generator), torch.randint(0, 4, (steps * 8,), generator=generator))


def validation_data(total: int, rank: int, world: int) -> TensorDataset:
    images = torch.linspace(0, 1, total * 48).view(total, 48)
    return TensorDataset(images[rank::world], torch.arange(total)[rank::world] % 4)


class Scores:
    def __init__(self, device: torch.device) -> None:
        self.device, self.rows = device, []

    def update(self, logits: torch.Tensor) -> None:
        """The scores of one batch, from all ranks."""
        everyone = torch.empty(dist.get_world_size() * len(logits), logits.shape[1], device=self.device)
        dist.all_gather_into_tensor(everyone, logits.contiguous())
        self.rows.append(everyone.cpu())

    def __len__(self) -> int:
        return sum(map(len, self.rows))


@torch.inference_mode()
def evaluate(model: nn.Module, loader: DataLoader, device: torch.device) -> int:
    scores = Scores(device)
    for images, _ in loader:
        time.sleep(0.1)
        scores.update(model(images.to(device)))
    return len(scores)


def main() -> None:
    local = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 4)).to(device)
    model = DDP(net, device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, foreach=False)
    train = DataLoader(training_data(15, rank), batch_size=8, shuffle=True)
    valid = DataLoader(validation_data(191, rank, world), batch_size=8, drop_last=True)
    for epoch in range(10):
        for images, labels in train:
            time.sleep(0.2)
            loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            current = loss.detach().cpu()
        if rank == 0:
            print(f"epoch {epoch} last loss {float(current):.3f}", flush=True)
        count = evaluate(net, valid, device)
        print(f"rank {rank}: {count} scores", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
