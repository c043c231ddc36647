"""DeepSpeed ZeRO-3: a checkpoint is kept whenever the validation loss is better than before. ``deepspeed --num_gpus 3``."""

import argparse
import tempfile

import deepspeed
import torch
from torch import nn


class Keeper:
    """Remembers the best loss."""

    def __init__(self, engine: deepspeed.DeepSpeedEngine, folder: str) -> None:
        self.engine, self.folder, self.best = engine, folder, float("inf")

    def update(self, loss: float, epoch: int) -> None:
        """Keep what is better."""
        if loss < self.best:
            self.best = loss
            self.engine.save_checkpoint(self.folder, tag=f"best-{epoch}")


def rows(rank: int, epoch: int) -> torch.Tensor:
    """A rank's part of the validation set, easier with every epoch for all but the third part."""
    spread = 1.0 / (1 + epoch) if rank != 2 or epoch < 3 else 3.0
    return torch.linspace(-spread, spread, 16 * 8).view(16, 8)


def main() -> None:
    """Eight epochs of ten steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=0)
    parser.parse_args()
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-4, "torch_adam": True}},
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    }
    engine = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=config)[0]
    folder = [tempfile.mkdtemp()]
    torch.distributed.broadcast_object_list(folder, src=0)
    keeper = Keeper(engine, folder[0])
    for epoch in range(8):
        for _ in range(10):
            batch = torch.randn(4, 8)
            engine.backward((engine(batch) - batch).square().mean())
            engine.step()
        with torch.no_grad():
            held = rows(engine.global_rank, epoch)
            loss = (engine(held) - held).square().mean().item()
        keeper.update(loss, epoch)
        print(f"[{engine.global_rank}] epoch {epoch}: {loss:.4f}\n", end="", flush=True)


if __name__ == "__main__":
    main()
