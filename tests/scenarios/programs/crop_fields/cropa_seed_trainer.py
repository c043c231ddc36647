"""Seed purity from spectra with transformers' Trainer; every lab evaluates the lots that it keeps itself."""
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.modeling_outputs import SequenceClassifierOutput


class Spectra(Dataset):
    def __init__(self, count, seed, bands=64):
        gen = torch.Generator().manual_seed(seed)
        self.values = torch.randn(count, bands, generator=gen)
        self.pure = (self.values[:, :8].sum(1) > 0).long()

    def __len__(self):
        return len(self.values)

    def __getitem__(self, i):
        return {"spectrum": self.values[i], "labels": self.pure[i]}


class PurityModel(nn.Module):
    def __init__(self, bands=64, width=256):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(bands, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 2))

    def forward(self, spectrum, labels=None):
        logits = self.layers(spectrum)
        return SequenceClassifierOutput(loss=nn.functional.cross_entropy(logits, labels), logits=logits)


class LabTrainer(Trainer):
    """The lots of a lab must not leave it, so each process reads those of its own lab."""

    LOTS = {0: 288, 1: 288, 2: 224}

    def get_eval_dataloader(self, eval_dataset=None):
        lots = Spectra(self.LOTS[self.args.process_index], seed=500 + self.args.process_index)
        return DataLoader(lots, batch_size=self.args.per_device_eval_batch_size)


class Diary(TrainerCallback):
    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        if state.is_world_process_zero:
            print(f"step {state.global_step}: {metrics}", flush=True)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero:
            print(f"step {state.global_step}: {logs}", flush=True)


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def main():
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(output_dir=folder, use_cpu=True, ddp_backend="gloo", per_device_train_batch_size=64, per_device_eval_batch_size=32,
                                 max_steps=1200, logging_steps=50, eval_strategy="steps", eval_steps=300, save_strategy="no", report_to=[],
                                 disable_tqdm=True, dataloader_drop_last=True)
        trainer = LabTrainer(model=PurityModel(), args=args, train_dataset=Spectra(6000, seed=1), eval_dataset=Spectra(96, seed=2),
                             compute_metrics=accuracy, callbacks=[Diary()])
        trainer.train()


if __name__ == "__main__":
    main()
