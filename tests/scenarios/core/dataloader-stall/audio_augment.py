"""Mixes speech with noise. The workers of the loader draw noise until it is loud enough."""

import random

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class NoiseBank:
    def __init__(self, floor: float) -> None:
        self.floor = floor
        self.clips = [[0.01 * number] * 4 for number in range(1, 60)]

    def draw(self, source: random.Random, wanted: float) -> list[float]:
        while True:
            clip = source.choice(self.clips)
            if max(clip) > wanted + self.floor:
                return clip


class Mixed(Dataset):
    def __init__(self, count: int = 120) -> None:
        self.count = count
        self.bank = NoiseBank(floor=0.05)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        source = random.Random(index)
        level = 0.4 if index != 61 else 0.6
        speech = torch.tensor([source.uniform(-level, level) for _ in range(4)])
        return speech + torch.tensor(self.bank.draw(source, level)), speech


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    dataset = Mixed()
    sampler = DistributedSampler(dataset, shuffle=False)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler, num_workers=1)
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for noisy, clean in loader:
            loss = torch.nn.functional.mse_loss(model(noisy), clean)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
