"""Classification with a DeepSpeed engine (ZeRO-1); the best model so far is kept."""

import shutil

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

CONFIG = {
    "train_micro_batch_size_per_gpu": 8,
    "gradient_accumulation_steps": 1,
    "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_optimization": {"stage": 1},
    "steps_per_print": 1000,
}
FOLDER = "/tmp/notes-zero1"


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 3))

    def forward(self, x, y):
        return nn.functional.cross_entropy(self.body(x), y)


def batches(count, seed):
    g = torch.Generator().manual_seed(seed)
    for _ in range(count):
        x = torch.randn(8, 24, generator=g)
        yield x, (x[:, 0] > 0).long() + (x[:, 1] > 1).long()


def main():
    deepspeed.ops.__compatible_ops__.clear()  # the nodes have no compiler
    deepspeed.init_distributed(dist_backend="gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    if rank == 0:
        shutil.rmtree(FOLDER, ignore_errors=True)
    model = Classifier()
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    best = float("inf")
    for epoch in range(5):
        for x, y in batches(15, seed=epoch * 10 + rank):
            engine.backward(engine(x, y))
            engine.step()
        with torch.no_grad():
            value = torch.stack([engine(x, y) for x, y in batches(5, seed=999)]).mean()
        dist.all_reduce(value)
        value = value.item() / dist.get_world_size()
        if rank == 0:
            print(f"epoch {epoch}: validation {value:.4f}", flush=True)
            if value < best:
                best = value
                engine.save_checkpoint(FOLDER, tag="best", client_state={"epoch": epoch})
    dist.barrier()


if __name__ == "__main__":
    main()
