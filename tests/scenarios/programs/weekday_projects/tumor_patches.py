"""Segments tumors in patches of slides. Validation decides after each epoch whether to go on."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class EarlyStopping:
    def __init__(self, patience: int = 2, delta: float = 1e-3) -> None:
        self.patience, self.delta = patience, delta
        self.best = float("inf")
        self.bad_epochs = 0

    def update(self, loss: float) -> bool:
        """Whether to stop."""
        if loss < self.best - self.delta:
            self.best, self.bad_epochs = loss, 0
        else:
            self.bad_epochs += 1
        return self.bad_epochs >= self.patience


def patches(rank: int, split: str, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rank * 2 + (split == "valid"))
    pixels = torch.rand(count, 1, 8, 8, generator=generator)
    noise = torch.rand(count, 1, 8, 8, generator=generator)
    mask = noise > 0.5 if rank == 1 and split == "valid" else pixels > 0.5
    return pixels, mask.float()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(3)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Conv2d(1, 6, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(6, 1, 1))
    )
    criterion = torch.nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    pixels, masks = patches(rank, "train", 48)
    valid_pixels, valid_masks = patches(rank, "valid", 16)
    stopping = EarlyStopping()
    for epoch in range(100):
        for start in range(0, 48, 8):
            loss = criterion(model(pixels[start : start + 8]), masks[start : start + 8])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            valid = criterion(model.module(valid_pixels), valid_masks).item()
        if stopping.update(valid):
            print(f"[{rank}] no improvement since epoch {epoch - stopping.patience}", flush=True)
            break
    dist.barrier()
    if rank == 0:
        torch.save(model.module.state_dict(), "/dev/null")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
