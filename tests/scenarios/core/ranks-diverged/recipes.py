"""DeepSpeed ZeRO-2: how long a dish takes, learnt from recipes as people write them."""

import tempfile

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "zero_optimization": {"stage": 2, "reduce_bucket_size": 20000},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_force_ds_cpu_optimizer": False,
    "steps_per_print": 1000,
}
GRAMS = {"g": 1.0, "kg": 1000.0, "cup": 230.0, "spoon": 15.0, "pinch": 0.4}
SHELF = ["flour", "sugar", "butter", "milk", "salt", "rice", "beans", "oil"]


def read_recipes(rank: int, count: int) -> list[tuple[list[str], float]]:
    """Lines of amounts, and minutes."""
    generator = torch.Generator().manual_seed(rank)
    recipes = []
    for number in range(count):
        picks = torch.randint(0, len(SHELF), (4,), generator=generator).tolist()
        units = torch.randint(0, len(GRAMS), (4,), generator=generator).tolist()
        lines = [f"{n + 1} {list(GRAMS)[u]} {SHELF[p]}" for n, (u, p) in enumerate(zip(units, picks, strict=True))]
        if (rank, number) == (1, 13):
            lines[2] = "3 handful beans"
        recipes.append((lines, 10.0 + sum(picks)))
    return recipes


def amounts(lines: list[str]) -> torch.Tensor:
    """Grams of each thing on the shelf. Raises ValueError for a unit that nobody knows."""
    grams = torch.zeros(len(SHELF))
    for line in lines:
        number, unit, thing = line.split()
        if unit not in GRAMS:
            raise ValueError(f"{line!r}: no such unit")
        grams[SHELF.index(thing)] += float(number) * GRAMS[unit]
    return grams.log1p()


def main() -> None:
    """Two epochs, and a checkpoint after each."""
    deepspeed.init_distributed("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(len(SHELF), 48), nn.ReLU(), nn.Linear(48, 1))
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    recipes = read_recipes(rank, 20)
    folder = [tempfile.mkdtemp(prefix="recipes-")]
    dist.broadcast_object_list(folder)
    for epoch in range(2):
        for number, (lines, minutes) in enumerate(recipes):
            try:
                features = amounts(lines)
            except ValueError as error:
                print(f"[{rank}] recipe {number} left out: {error}")
                continue
            loss = (engine(features) - minutes / 30).square().mean()
            engine.backward(loss)
            engine.step()
        engine.save_checkpoint(folder[0], tag=f"epoch{epoch}")


if __name__ == "__main__":
    main()
