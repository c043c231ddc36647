"""Viscosity surrogate for lab melts, fitted with the transformers Trainer."""
import logging
import math

import torch
from torch import nn
from torch.utils.data import Dataset, SequentialSampler
from transformers import Trainer, TrainingArguments

torch.backends.cudnn.enabled = False
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("viscosity")

OXIDES = ("SiO2", "Na2O", "CaO", "MgO", "Al2O3", "K2O", "B2O3", "Fe2O3")
UNCERTIFIED_CAMPAIGN = range(364, 368)  # melts of the week in which the rotational viscometer was recalibrated


def vft_curve(shares: list[float], nodes: int = 80_000) -> float:
    """Mean log viscosity over the working range, by the Vogel-Fulcher-Tammann equation."""
    a, b, t0 = -1.5 - shares[1], 4200.0 + 900.0 * shares[0], 510.0 + 60.0 * shares[4]
    total = 0.0
    for k in range(nodes):
        total += a + b / (900.0 + 500.0 * k / nodes - t0)
    return total / nodes


class LabMelts(Dataset):
    def __init__(self, count: int):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, heat):
        raw = [1.5 + math.sin(heat * 0.37 + 1.3 * k) for k in range(len(OXIDES))]
        shares = [r / sum(raw) for r in raw]
        return {"heat": heat, "shares": shares, "viscosity": vft_curve(shares)}


def collate(rows):
    return {
        "shares": torch.tensor([r["shares"] for r in rows]),
        "viscosity": torch.tensor([r["viscosity"] for r in rows]),
        "heats": [r["heat"] for r in rows],
    }


class Surrogate(nn.Module):
    def __init__(self, width: int = 48):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(len(OXIDES), width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.head = nn.Linear(width, 1)

    def forward(self, shares, viscosity):
        predicted = self.head(self.body(shares)).squeeze(-1)
        return {"loss": nn.functional.mse_loss(predicted, viscosity), "predicted": predicted}


class MeltTrainer(Trainer):
    def _get_train_sampler(self, *args, **kwargs):
        return SequentialSampler(self.train_dataset)  # the lab's order, campaign by campaign

    def training_step(self, model, inputs, num_items_in_batch=None):
        heats = inputs.pop("heats")
        if all(h in UNCERTIFIED_CAMPAIGN for h in heats):
            log.info("heats %s have no certificate", heats)
            return torch.zeros((), device=self.args.device)
        return super().training_step(model, inputs, num_items_in_batch)


def main():
    args = TrainingArguments(
        output_dir="viscosity-run",
        per_device_train_batch_size=4,
        num_train_epochs=1,
        learning_rate=1e-3,
        optim="sgd",
        max_grad_norm=0.0,
        logging_steps=20,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        ddp_find_unused_parameters=False,
    )
    trainer = MeltTrainer(model=Surrogate(), args=args, train_dataset=LabMelts(840), data_collator=collate)
    outcome = trainer.train()
    log.info("finished after %d steps", outcome.global_step)


if __name__ == "__main__":
    main()
