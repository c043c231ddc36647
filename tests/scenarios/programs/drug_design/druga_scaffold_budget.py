"""Pretrains a lipophilicity model with transformers' Trainer until enough of chemical space has been covered."""

import tempfile

import torch
from torch import nn
from torch.utils.data import Dataset, SequentialSampler
from transformers import Trainer, TrainerCallback, TrainingArguments

BATCH = 6
# libraries in the order in which they are dealt to the processes, with the number of new scaffolds per batch
LIBRARIES = (("combinatorial", 1), ("patent", 1), ("natural-products", 5))


class Deck(Dataset):
    """Deals one batch of each library in turn."""

    def __init__(self, batches):
        self.batches = batches

    def __len__(self):
        return self.batches * BATCH

    def __getitem__(self, index):
        batch, position = divmod(index, BATCH)
        turn, library = divmod(batch, len(LIBRARIES))
        fresh = LIBRARIES[library][1]
        scaffold = 100_000 * library + turn * fresh + min(position, fresh - 1)
        source = torch.Generator().manual_seed(scaffold)
        core = torch.randn(32, 32, generator=source)
        for _ in range(12):  # spectral features of the molecular graph
            core = torch.tanh(core @ core.T / 8.0)
        features = torch.linalg.eigvalsh(core + core.T)
        return {"spectrum": features, "scaffold": torch.tensor(scaffold), "labels": features[:4].sum() * 0.1}


class LogD(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, spectrum, scaffold=None, labels=None):
        logd = self.layers(spectrum).squeeze(-1)
        return {"loss": nn.functional.mse_loss(logd, labels), "logits": logd}


class Coverage(TrainerCallback):
    """Ends the pretraining when the wanted number of scaffolds has been met."""

    def __init__(self, wanted):
        self.wanted, self.met = wanted, set()

    def note(self, scaffolds):
        self.met.update(scaffolds.tolist())

    def on_step_end(self, args, state, control, **kwargs):
        if len(self.met) >= self.wanted:
            control.should_training_stop = True
        return control


class DeckTrainer(Trainer):
    coverage = None

    def _get_train_sampler(self, *args, **kwargs):
        return SequentialSampler(self.train_dataset)

    def training_step(self, model, inputs, *args, **kwargs):
        self.coverage.note(inputs["scaffold"])
        return super().training_step(model, inputs, *args, **kwargs)


def build(wanted=250):
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="logd-"), use_cpu=True, max_steps=600, learning_rate=1e-3,
        per_device_train_batch_size=BATCH, per_device_eval_batch_size=BATCH, save_strategy="no", logging_steps=1000,
        report_to="none", disable_tqdm=True, remove_unused_columns=False, label_names=["labels"],
    )
    coverage = Coverage(wanted)
    trainer = DeckTrainer(
        model=LogD(), args=arguments, train_dataset=Deck(1800), eval_dataset=Deck(36), callbacks=[coverage]
    )
    trainer.coverage = coverage
    return trainer


def main():
    torch.set_num_threads(1)
    torch.manual_seed(2)
    trainer = build()
    trainer.train()
    print(f"process {trainer.args.process_index}: {len(trainer.coverage.met)} scaffolds", flush=True)
    metrics = trainer.evaluate()
    print("eval loss", metrics["eval_loss"], flush=True)


if __name__ == "__main__":
    main()
