"""Formation energies of random crystals from composition vectors (transformers' Trainer)."""
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

ELEMENTS = 40


ARCHIVES = {  # elements of the archive, spread of its reference energies
    "perovskites": (range(0, 40), 0.15),
    "elemental": (range(36, 40), 0.0),
    "oxides": (range(10, 40), 0.15),
}


class Crystals(Dataset):
    """Composition fractions of one archive and an energy from pair terms."""

    def __init__(self, archive, count, seed):
        g = torch.Generator().manual_seed(seed)
        elements, spread = ARCHIVES[archive]
        weights = torch.zeros(count, ELEMENTS)
        weights[:, list(elements)] = torch.rand(count, len(elements), generator=g) ** 4
        self.x = weights / weights.sum(1, keepdim=True)
        pair = torch.randn(ELEMENTS, ELEMENTS, generator=torch.Generator().manual_seed(0))
        pair[36:, 36:] = 0.0
        self.y = torch.einsum("ni,ij,nj->n", self.x, pair, self.x) + spread * torch.randn(count, generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"composition": self.x[i], "labels": self.y[i]}


class EnergyNet(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(ELEMENTS, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))
        self.last_loss = None

    def forward(self, composition, labels=None):
        energy = self.net(composition).squeeze(-1)
        loss = nn.functional.mse_loss(energy, labels)
        self.last_loss = loss.detach()
        return {"loss": loss, "logits": energy}


class Converged(TrainerCallback):
    """Ends the run when the smoothed loss is under the accuracy of the reference calculations."""

    def __init__(self, target, momentum=0.9, at_least=80):
        self.target, self.momentum, self.at_least = target, momentum, at_least
        self.smooth = None

    def on_step_end(self, args, state, control, model=None, **kwargs):
        value = getattr(model, "module", model).last_loss.item()
        self.smooth = value if self.smooth is None else self.momentum * self.smooth + (1 - self.momentum) * value
        if state.global_step >= self.at_least and self.smooth < self.target:
            control.should_training_stop = True
        return control


class ArchiveTrainer(Trainer):
    """Every process reads an archive of its own."""

    def get_train_dataloader(self):
        archive = list(ARCHIVES)[self.args.process_index % len(ARCHIVES)]
        return DataLoader(Crystals(archive, 200_000, seed=1), batch_size=self.args.train_batch_size, shuffle=True)


def mean_error(prediction):
    return {"mae": float(abs(prediction.predictions - prediction.label_ids).mean())}


def main():
    torch.set_num_threads(1)
    torch.manual_seed(4)
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="crystals-"),
        use_cpu=True,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=64,
        max_steps=4000,
        learning_rate=1e-3,
        logging_steps=50,
        save_strategy="no",
        eval_strategy="no",
        report_to=[],
        disable_tqdm=True,
        dataloader_num_workers=0,
    )
    trainer = ArchiveTrainer(
        model=EnergyNet(),
        args=args,
        train_dataset=Crystals("perovskites", 64, seed=1),
        eval_dataset=Crystals("oxides", 960, seed=2),
        compute_metrics=mean_error,
        callbacks=[Converged(target=2e-3)],
    )
    trainer.train()
    print(f"stopped at step {trainer.state.global_step}", flush=True)
    print(trainer.evaluate(), flush=True)


if __name__ == "__main__":
    main()
