"""DeepSpeed, ZeRO-1: the next move of a chess game from the last eight."""

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

MOVES, PAST = 128, 8
CONFIG = {
    "train_micro_batch_size_per_gpu": 16,
    "zero_optimization": {"stage": 1},
    "steps_per_print": 1000,
}


class Player(nn.Module):
    """A bag of moves with their places."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.moves = nn.Embedding(MOVES, width)
        self.body = nn.Sequential(nn.Linear(PAST * width, 64), nn.ReLU(), nn.Linear(64, MOVES))

    def forward(self, past: torch.Tensor) -> torch.Tensor:
        return self.body(self.moves(past).flatten(1))


class Board:
    """What goes into the run's log: speed, learning rate, loss of the whole job."""

    def __init__(self, every: int) -> None:
        self.every = every

    def average(self, value: torch.Tensor) -> float:
        """Over all ranks."""
        total = value.detach().clone()
        dist.reduce(total, dst=0)
        return total.item() / dist.get_world_size()

    def update(self, engine: deepspeed.DeepSpeedEngine, loss: torch.Tensor) -> None:
        """After each step."""
        step = engine.global_steps
        if step % self.every == 0 and engine.global_rank == 0:
            rate = engine.optimizer.param_groups[0]["lr"]
            print(f"step {step}  lr {rate:.1e}  loss {self.average(loss):.4f}", flush=True)


def main() -> None:
    """Two hundred steps."""
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    player = Player()
    optimizer = torch.optim.AdamW(player.parameters(), lr=1e-3)
    engine, *_ = deepspeed.initialize(model=player, optimizer=optimizer, config=CONFIG)
    board = Board(every=50)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(200):
        game = torch.randint(0, MOVES, (16, PAST + 1), generator=generator)
        loss = nn.functional.cross_entropy(engine(game[:, :PAST]), game[:, PAST])
        engine.backward(loss)
        engine.step()
        board.update(engine, loss)
    dist.barrier()


if __name__ == "__main__":
    main()
