"""HF Trainer: bird calls by station, each rank trains on the recordings of its own stations."""

import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import Trainer, TrainingArguments

RECORDINGS = {"lake": 40, "forest": 48, "marsh": 40, "ridge": 36, "meadow": 44, "shore": 32}
BATCH = 4


class Ear(nn.Module):
    """Tells eight species by forty features."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(40, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, features: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.layers(features)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def station(name: str) -> TensorDataset:
    """The recordings of one station."""
    generator = torch.Generator().manual_seed(sum(name.encode()))
    count = RECORDINGS[name]
    return TensorDataset(
        torch.randn(count, 40, generator=generator), torch.randint(0, 8, (count,), generator=generator)
    )


def collate(rows: list[tuple[torch.Tensor, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """What the model takes."""
    return {"features": torch.stack([row[0] for row in rows]), "labels": torch.stack([row[1] for row in rows])}


class StationTrainer(Trainer):
    """Knows which stations are whose."""

    def get_train_dataloader(self) -> DataLoader:
        """The stations of this rank."""
        mine = list(RECORDINGS)[self.args.process_index :: self.args.world_size]
        data = torch.utils.data.ConcatDataset([station(name) for name in mine])
        return DataLoader(data, batch_size=BATCH, shuffle=True, collate_fn=collate)


def main() -> None:
    """Two epochs and a test."""
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="birds-"),
        per_device_eval_batch_size=BATCH,
        num_train_epochs=2,
        logging_steps=10,
        save_strategy="no",
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
    )
    torch.manual_seed(0)
    trainer = StationTrainer(model=Ear(), args=args, data_collator=collate, eval_dataset=station("shore"))
    trainer.train()
    print(f"[{dist.get_rank()}] trained {trainer.state.global_step} steps")
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
