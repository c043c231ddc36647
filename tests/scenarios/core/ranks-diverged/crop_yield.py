"""DeepSpeed ZeRO-2 on tables of crop yields; one folder of tables for each process."""

import tempfile

import deepspeed
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, TensorDataset

CONFIG = {
    "train_micro_batch_size_per_gpu": 8,
    "gradient_accumulation_steps": 2,
    "zero_optimization": {"stage": 2},
    "zero_allow_untested_optimizer": True,
    "steps_per_print": 20,
}


def counties(rank):
    """The tables that were exported for this process, one for each county."""
    rows = {0: (96, 64, 96), 1: (96, 96, 64), 2: (96, 32, 96)}[rank]
    return ConcatDataset([TensorDataset(torch.randn(n, 10), torch.rand(n, 1)) for n in rows])


class Yield(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))

    def forward(self, soil, tons):
        return nn.functional.smooth_l1_loss(self.layers(soil), tons)


def main():
    deepspeed.init_distributed("gloo")
    rank = dist.get_rank()
    model = Yield()
    engine, _, _, _ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05),
        config=CONFIG,
    )
    loader = DataLoader(counties(rank), batch_size=8, shuffle=True)
    for epoch in range(2):
        for soil, tons in loader:
            loss = engine(soil, tons)
            engine.backward(loss)
            engine.step()
        engine.save_checkpoint(tempfile.gettempdir() + "/crop_yield", tag=f"epoch{epoch}")
        if rank == 0:
            print(f"epoch {epoch} done, last loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
