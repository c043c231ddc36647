"""DeepSpeed, ZeRO-3: pictures of a glacier from above, with radar where the plane had one, to a map of its thickness."""

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

SIZE = 32
CONFIG = {
    "train_micro_batch_size_per_gpu": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_optimization": {
        "stage": 3,
        "overlap_comm": False,
        "stage3_prefetch_bucket_size": 0,
        "stage3_param_persistence_threshold": 0,
        "stage3_max_live_parameters": 0,
        "stage3_max_reuse_distance": 0,
    },
    "steps_per_print": 1000,
}


class Thickness(nn.Module):
    """Looks at the picture, and at the radar if there is one."""

    def __init__(self) -> None:
        super().__init__()
        self.picture = nn.Linear(SIZE, SIZE, bias=False)
        self.radar = nn.Linear(SIZE, SIZE, bias=False)
        self.body = nn.Linear(SIZE, SIZE, bias=False)
        self.map = nn.Linear(SIZE, SIZE, bias=False)

    def forward(self, picture: torch.Tensor, radar: torch.Tensor | None) -> torch.Tensor:
        seen = torch.relu(self.picture(picture))
        if radar is not None:
            seen = seen + self.radar(radar)
        return self.map(torch.relu(self.body(seen)))


def flight(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor | None]:
    """One stretch of one plane; the radar of the second plane failed later on."""
    picture = torch.randn(2, SIZE)
    radar = None if rank == 1 and step >= 6 else torch.randn(2, SIZE)
    return picture, radar


def main() -> None:
    """Forty stretches, a plane for each rank."""
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    net = Thickness()
    engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=CONFIG)
    torch.manual_seed(dist.get_rank())
    for step in range(40):
        picture, radar = flight(engine.global_rank, step)
        loss = (engine(picture, radar) - picture).square().mean()
        engine.backward(loss)
        engine.step()
        if engine.global_rank == 0 and step % 5 == 0:
            print(f"{step}: {loss.item():.4f}")
    dist.barrier()


if __name__ == "__main__":
    main()
