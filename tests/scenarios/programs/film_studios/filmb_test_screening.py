"""Predicts audience scores; the main process alone runs the test screening between two rounds (accelerate)."""
import copy
import statistics
import time

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class AudienceModel(nn.Module):
    def __init__(self, traits=20):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(traits, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 1))

    def forward(self, traits):
        return self.body(traits).squeeze(-1)


def screening_reels(count=110):
    """The reels are decoded one by one; a reel has the traits of its forty seats."""
    for reel in range(count):
        g = torch.Generator().manual_seed(reel)
        time.sleep(0.11)
        seats = torch.rand(40, 20, generator=g)
        yield reel, seats, seats[:, :5].mean(dim=1)


class TestScreening:
    def __init__(self, accelerator):
        self.accelerator, self.best = accelerator, float("inf")

    def run(self, model):
        result = [None]
        if self.accelerator.is_main_process:
            result[0] = self.measure(copy.deepcopy(self.accelerator.unwrap_model(model)).eval())
        dist.broadcast_object_list(result, src=0)
        self.best = min(self.best, result[0])
        return result[0]

    @torch.no_grad()
    def measure(self, plain):
        errors = []
        for reel, seats, score in screening_reels():
            errors.append((plain(seats) - score).abs().mean().item())
            if reel % 25 == 24:
                self.accelerator.print(f"screening, reel {reel + 1}: {statistics.mean(errors):.3f}", flush=True)
        return statistics.mean(errors)


def main():
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(14)
    traits = torch.rand(1440, 20)
    data = TensorDataset(traits, traits[:, :5].mean(dim=1))
    model = AudienceModel()
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    loader = DataLoader(data, batch_size=8, shuffle=False)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    screening = TestScreening(accelerator)
    for part in range(2):
        model.train()
        for rows, score in loader:
            time.sleep(0.03)
            loss = nn.functional.smooth_l1_loss(model(rows), score)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        accelerator.print(f"part {part}: loss {loss.item():.4f}", flush=True)
        if part == 0:
            accelerator.print(f"test screening: {screening.run(model):.3f}", flush=True)
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
