"""Parish registers: entries are sorted into baptisms, marriages and burials; each process reads its own volumes."""

import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
from transformers import Trainer, TrainingArguments, default_data_collator

VOLUMES = {"Ashby": 96, "Barton": 80, "Cotes": 96, "Denby": 48, "Elmley": 48, "Foxton": 48}


class Entries(Dataset):
    """The entries of some volumes."""

    def __init__(self, volumes: list[str]) -> None:
        size = sum(VOLUMES[name] for name in volumes)
        words = torch.randn(size, 20, generator=torch.Generator().manual_seed(len(volumes)))
        self.rows = TensorDataset(words, words[:, :3].argmax(dim=1))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        words, kind = self.rows[index]
        return {"words": words, "labels": kind}


class Sorter(nn.Module):
    """Three classes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(20, 48), nn.ReLU(), nn.Linear(48, 3))

    def forward(self, words: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Loss and scores."""
        scores = self.layers(words)
        return {"loss": nn.functional.cross_entropy(scores, labels), "logits": scores}


class RegisterTrainer(Trainer):
    """Takes the process's volumes as they are."""

    def get_train_dataloader(self) -> DataLoader:
        """No sampler: the volumes are divided already."""
        return DataLoader(
            self.train_dataset, batch_size=8, shuffle=True, drop_last=True, collate_fn=default_data_collator
        )


def main() -> None:
    """Trains, and evaluates."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(0)
    mine = sorted(VOLUMES)[rank::world]
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        num_train_epochs=2,
        logging_steps=4,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo",
    )
    held_out = Entries(["Ashby"])
    trainer = RegisterTrainer(model=Sorter(), args=arguments, train_dataset=Entries(mine), eval_dataset=held_out)
    trainer.train()
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
