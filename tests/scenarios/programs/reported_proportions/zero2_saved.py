"""DeepSpeed, ZeRO-2: saved by all ranks, and a summary by the first."""

import tempfile
import time

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_optimization": {"stage": 2},
    "steps_per_print": 1000,
}


class Model(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.layers(x).squeeze(1) - x.mean(dim=1)).square().mean()


def main() -> None:
    """Thirty steps, saved twice."""
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    model = Model()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder, src=0)
    for step in range(1, 31):
        loss = engine(torch.randn(4, 16))
        engine.backward(loss)
        engine.step()
        if step % 15 == 0:
            engine.save_checkpoint(folder[0], tag=f"step-{step}")
            if engine.global_rank == 0:
                time.sleep(2.0)
                print(f"{step}: {loss.item():.4f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
