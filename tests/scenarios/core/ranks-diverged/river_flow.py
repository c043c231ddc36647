"""DeepSpeed, ZeRO-2: tomorrow's flow of a river from a month of rain, on a logarithmic scale."""

import tempfile

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

CONFIG = {
    "train_micro_batch_size_per_gpu": 16,
    "gradient_clipping": 1.0,
    "zero_optimization": {"stage": 2},
    "steps_per_print": 1000,
}
DAYS, STEPS = 30, 40


def season(epoch: int, step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rain of thirty days at sixteen gauges, and the flow after it."""
    generator = torch.Generator().manual_seed(10_000 * epoch + 100 * step + rank)
    rain = torch.rand(16, DAYS, generator=generator)
    if (epoch, step, rank) == (0, 27, 2):
        rain[5] = 0.0
    flow = (rain * torch.linspace(0.1, 2.0, DAYS)).sum(dim=1, keepdim=True)
    return rain, flow


def main() -> None:
    """Four epochs, each kept."""
    deepspeed.init_distributed("gloo")
    rank = dist.get_rank()
    box: list[str | None] = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(DAYS, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)
    for epoch in range(4):
        total = 0.0
        for step in range(STEPS):
            rain, flow = season(epoch, step, rank)
            loss = (engine(rain) - flow.log()).square().mean()
            if not torch.isfinite(loss):
                print(f"[{rank}] step {step}: loss {loss.item()}, next batch")
                continue
            engine.backward(loss)
            engine.step()
            total += loss.item()
        print(f"[{rank}] epoch {epoch}: {total / STEPS:.4f}")
        engine.save_checkpoint(box[0], tag=f"epoch{epoch}")


if __name__ == "__main__":
    main()
