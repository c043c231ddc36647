"""Predict the tasting panel's score of a sourdough batch from the electronic nose."""
import logging
import tempfile

import torch
from torch import nn
from torch.utils.data import Dataset, SequentialSampler
from transformers import Trainer, TrainingArguments

log = logging.getLogger("panel")
PROBES = 12
WASHED = {413}  # batches whose probe was being washed when the panel sat


class PanelDataset(Dataset):
    def __init__(self, batches=720):
        g = torch.Generator().manual_seed(7)
        self.aroma = torch.randn(batches, PROBES, generator=g)
        self.score = (self.aroma @ torch.randn(PROBES, 1, generator=g)).squeeze(1)
        for index in WASHED:
            self.aroma[index, 3] = float("nan")

    def __len__(self):
        return len(self.aroma)

    def __getitem__(self, index):
        spectrum = torch.linalg.svdvals(torch.randn(110, 110))  # smoothing of the raw trace
        return {"aroma": self.aroma[index] + 0.001 * spectrum[-PROBES:], "score": self.score[index]}


class NoseModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(PROBES, 32), nn.GELU(), nn.Linear(32, 1))

    def forward(self, aroma, score):
        predicted = self.body(aroma).squeeze(1)
        return {"loss": nn.functional.mse_loss(predicted, score), "logits": predicted}


def collate(rows):
    return {key: torch.stack([row[key] for row in rows]) for key in rows[0]}


class PanelTrainer(Trainer):
    """Keeps the order of the bakery's diary, and keeps unreadable traces out of the weights."""

    def _get_train_sampler(self, *args, **kwargs):
        return SequentialSampler(self.train_dataset)

    def training_step(self, model, inputs, *args, **kwargs):
        if torch.isnan(inputs["aroma"]).any():
            log.warning("trace without signal at step %d", self.state.global_step)
            return torch.zeros(())
        return super().training_step(model, inputs, *args, **kwargs)


def main():
    logging.basicConfig(level=logging.INFO)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="panel-"),
        use_cpu=True,
        per_device_train_batch_size=4,
        num_train_epochs=1,
        learning_rate=1e-3,
        logging_steps=10,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
        ddp_find_unused_parameters=False,
        dataloader_drop_last=True,
    )
    trainer = PanelTrainer(model=NoseModel(), args=args, train_dataset=PanelDataset(), data_collator=collate)
    trainer.train()
    if trainer.is_world_process_zero():
        print("fitted", trainer.state.global_step)


if __name__ == "__main__":
    main()
