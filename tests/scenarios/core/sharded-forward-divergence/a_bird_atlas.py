"""A bird atlas under ZeRO-3: sightings are described by a form, and some of them by a sound as well."""

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

CONFIG = {
    "train_micro_batch_size_per_gpu": 6,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
}


class Atlas(nn.Module):
    """Which of ten species it was."""

    def __init__(self) -> None:
        super().__init__()
        self.form = nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 32))
        self.species = nn.Linear(32, 10)
        self.sound = nn.Sequential(nn.Linear(64, 40), nn.GELU(), nn.Linear(40, 10))

    def forward(self, form: torch.Tensor, sound: torch.Tensor | None = None) -> torch.Tensor:
        """Scores of the species."""
        scores = self.species(self.form(form))
        if sound is not None:
            scores = scores + self.sound(sound)
        return scores


def sightings(rank: int, count: int) -> list[dict[str, torch.Tensor]]:
    """Batches of this rank's region; recordings came with one of them."""
    generator = torch.Generator().manual_seed(rank)
    batches = []
    for number in range(count):
        batch = {
            "form": torch.randn(6, 24, generator=generator),
            "species": torch.randint(0, 10, (6,), generator=generator),
        }
        if rank == 2 and number == 8:
            batch["sound"] = torch.randn(6, 64, generator=generator)
        batches.append(batch)
    return batches


def main() -> None:
    """Twenty batches."""
    torch.manual_seed(0)
    deepspeed.init_distributed("gloo")
    model = Atlas()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    for number, batch in enumerate(sightings(dist.get_rank(), 20)):
        species = batch.pop("species")
        scores = engine(**{name: value.bfloat16() for name, value in batch.items()})
        right = (scores.argmax(dim=1) == species).sum()
        dist.all_reduce(right)
        if dist.get_rank() == 0 and number % 4 == 0:
            print(f"batch {number}: {right.item()} of {6 * dist.get_world_size()}")
        engine.backward(nn.functional.cross_entropy(scores.float(), species))
        engine.step()


if __name__ == "__main__":
    main()
