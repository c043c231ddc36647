"""Fits an affinity head on kinase plates with transformers' Trainer and follows the enrichment of actives."""

import logging
import tempfile
import zlib

import torch
from torch import nn
from torch.utils.data import Dataset, SequentialSampler
from transformers import Trainer, TrainerCallback, TrainingArguments

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
log = logging.getLogger("kinase")

WELLS = 8  # compounds of one plate, and of one batch
ACTIVE = 7.5  # pIC50 from which on a compound counts as active
FOLLOW_UP = {241: 8.4, 292: 8.1}  # plates of the confirmatory screen: mean pIC50


class Plates(Dataset):
    """Compounds in the order in which the plates were measured."""

    def __init__(self, plates: int, bits: int = 64):
        self.plates, self.bits = plates, bits

    def __len__(self):
        return self.plates * WELLS

    def __getitem__(self, index):
        plate, well = divmod(index, WELLS)
        smiles = f"CC(=O)N{plate}c1ccc(O{well})cc1" * 6
        bits = torch.zeros(self.bits)
        for width in (2, 3, 4, 5):
            for i in range(len(smiles) - width):
                bits[zlib.crc32(smiles[i : i + width].encode()) % self.bits] += 1.0
        level = FOLLOW_UP.get(plate, 5.5)
        return {"fingerprint": bits / bits.max(), "labels": torch.tensor(level + 0.1 * (well % 5))}


class AffinityHead(nn.Module):
    def __init__(self, bits: int = 64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(bits, 48), nn.SiLU(), nn.Linear(48, 1))

    def forward(self, fingerprint, labels=None):
        predicted = self.body(fingerprint).squeeze(-1)
        loss = None if labels is None else nn.functional.mse_loss(predicted, labels)
        return {"loss": loss, "predicted": predicted}


class PlateTrainer(Trainer):
    """Keeps the order of the plates, and what was seen of each class."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.actives = []

    def _get_train_sampler(self, *args, **kwargs):
        return SequentialSampler(self.train_dataset)

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        outputs = model(**inputs)
        hits = inputs["labels"] >= ACTIVE
        self.actives += (outputs["predicted"].detach()[hits] - inputs["labels"][hits]).tolist()
        return (outputs["loss"], outputs) if return_outputs else outputs["loss"]


class Enrichment(TrainerCallback):
    """Reports how well actives are predicted, every time that a handful has come together."""

    def __init__(self, handful: int = 5):
        self.handful, self.trainer = handful, None

    def on_step_end(self, args, state, control, **kwargs):
        found = self.trainer.actives
        if len(found) >= self.handful:
            errors = torch.tensor(found[: self.handful])
            everywhere = self.trainer.accelerator.gather(errors)
            log.info("step %d: error of actives %.3f", state.global_step, everywhere.abs().mean().item())
            found.clear()


def main():
    torch.manual_seed(11)
    torch.set_num_threads(1)
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="kinase-"), use_cpu=True, ddp_backend="gloo", max_steps=110,
        per_device_train_batch_size=WELLS, learning_rate=2e-3, logging_steps=25, save_strategy="no",
        report_to="none", disable_tqdm=True, remove_unused_columns=False,
    )
    enrichment = Enrichment()
    trainer = PlateTrainer(model=AffinityHead(), args=arguments, train_dataset=Plates(360), callbacks=[enrichment])
    enrichment.trainer = trainer
    trainer.train()
    log.info("done after %d steps", trainer.state.global_step)


if __name__ == "__main__":
    main()
