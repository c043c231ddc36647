"""DeepSpeed ZeRO-1; functions are called after a step when their time has come, by a decorator. ``deepspeed --num_gpus 3``."""

import argparse
import functools
from collections.abc import Callable

import deepspeed
import torch
from torch import nn

Hook = Callable[["Run"], None]


def when(ready: Callable[["Run"], bool]) -> Callable[[Hook], Hook]:
    """Make a function that does its work only if the run is ready for it."""

    def decorate(function: Hook) -> Hook:
        @functools.wraps(function)
        def hook(run: "Run") -> None:
            return function(run) if ready(run) else None

        return hook

    return decorate


class Run:
    """An engine and what was seen so far."""

    def __init__(self, engine: deepspeed.DeepSpeedEngine) -> None:
        self.engine = engine
        self.best, self.stale = float("inf"), 0

    def step(self, batch: torch.Tensor) -> None:
        """One step."""
        loss = self.engine(batch).float().square().mean()
        self.engine.backward(loss)
        self.engine.step()
        if loss.item() < self.best:
            self.best, self.stale = loss.item(), 0
        else:
            self.stale += 1


@when(lambda run: run.stale >= 10)
def compare_replicas(run: Run) -> None:
    """It does not get better: is this the same elsewhere?"""
    bests = [torch.zeros(1) for _ in range(run.engine.world_size)]
    deepspeed.comm.all_gather(bests, torch.tensor([run.best]))
    print(f"best so far: {[round(best.item(), 4) for best in bests]}", flush=True)
    run.stale = 0


def main() -> None:
    """Sixty steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=0)
    parser.parse_args()
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 3))
    engine, *_ = deepspeed.initialize(
        model=net,
        model_parameters=net.parameters(),
        config={
            "train_micro_batch_size_per_gpu": 2,
            "optimizer": {"type": "Adam", "params": {"lr": 1e-4, "torch_adam": True}},
            "zero_optimization": {"stage": 1},
        },
    )
    run = Run(engine)
    for number in range(60):
        harder = engine.global_rank == 1 and number > 22  # another chapter of its book
        run.step(torch.ones(2, 12) * (3.0 if harder else 1.0))
        compare_replicas(run)


if __name__ == "__main__":
    main()
