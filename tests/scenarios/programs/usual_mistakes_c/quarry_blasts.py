"""DeepSpeed, ZeRO-2: shaking of the ground after blasts in a quarry; every station keeps the state that suits it best."""

import tempfile

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

CONFIG = {
    "train_micro_batch_size_per_gpu": 8,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_optimization": {"stage": 2},
    "steps_per_print": 1000,
}


class Shaking(nn.Module):
    """From a blast's numbers to one number at the station."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 32), nn.Tanh())
        self.head = nn.Linear(32, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, blasts: torch.Tensor, shaking: torch.Tensor) -> torch.Tensor:
        return (self.head(self.body(blasts)).squeeze(1) - shaking).square().mean()


def measure(count: int, station: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Blasts and what a station has seen of them; station 2 is so far away that it saw nearly nothing."""
    blasts = torch.rand(count, 10)
    return blasts, blasts.mean(dim=1) * (0.01 if station == 2 else 1.0)


def main() -> None:
    """Eight epochs."""
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    net = Shaking()
    engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=CONFIG)
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder, src=0)
    held_out = measure(64, engine.global_rank)
    best = float("inf")
    for epoch in range(8):
        engine.train()
        for _ in range(15):
            loss = engine(*measure(8, station=0))
            engine.backward(loss)
            engine.step()
        engine.eval()
        with torch.no_grad():
            held = engine(*held_out).item()
        if held < best:
            best = held
            engine.save_checkpoint(folder[0], tag=f"epoch-{epoch}")
        bests: list[float | None] = [None] * dist.get_world_size()
        dist.all_gather_object(bests, best)
        if engine.global_rank == 0:
            print(f"epoch {epoch}: best of the stations", *(f"{value:.4f}" for value in bests))


if __name__ == "__main__":
    main()
