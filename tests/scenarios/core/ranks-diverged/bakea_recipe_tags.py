"""Tag recipe texts (bread, viennoiserie, cake, confectionery) with a small encoder and the HF Trainer."""
import logging
import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import Trainer, TrainingArguments

logger = logging.getLogger("recipe_tags")

VOCAB, TAGS, MAX_LEN = 800, 4, 64
PER_DEVICE = 4


class RecipeTexts(Dataset):
    """Token ids of recipe cards; lengths as they come from the scanner."""

    def __init__(self, count=720, seed=11):
        gen = torch.Generator().manual_seed(seed)
        self.lengths = torch.randint(12, 60, (count,), generator=gen).tolist()
        self.lengths[365] = 96  # the wedding cake with all of its fillings
        self.rows = [torch.randint(1, VOCAB, (n,), generator=gen) for n in self.lengths]
        self.tags = torch.randint(0, TAGS, (count,), generator=gen).tolist()

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i], self.tags[i]


def collate(samples):
    time.sleep(0.02)
    width = max(len(row) for row, _ in samples)
    ids = torch.zeros(len(samples), width, dtype=torch.long)
    for k, (row, _) in enumerate(samples):
        ids[k, : len(row)] = row
    return {"ids": ids, "tags": torch.tensor([tag for _, tag in samples])}


class RecipeEncoder(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.words = nn.Embedding(VOCAB, dim)
        self.places = nn.Embedding(MAX_LEN, dim)
        self.mix = nn.Linear(dim, dim)
        self.head = nn.Linear(dim, TAGS)

    def forward(self, ids, tags):
        places = self.places(torch.arange(ids.shape[1], device=ids.device))
        hidden = torch.relu(self.mix(self.words(ids) + places)).mean(1)
        logits = self.head(hidden)
        return {"loss": nn.functional.cross_entropy(logits, tags), "logits": logits}


class RecipeTrainer(Trainer):
    def get_train_dataloader(self):
        loader = DataLoader(self.train_dataset, batch_size=PER_DEVICE, collate_fn=collate, shuffle=False)
        return self.accelerator.prepare(loader)

    def training_step(self, model, inputs, *args, **kwargs):
        try:
            return super().training_step(model, inputs, *args, **kwargs)
        except (IndexError, RuntimeError) as err:
            logger.warning("step %d: card dropped (%s)", self.state.global_step, type(err).__name__)
            model.zero_grad()
            return torch.zeros((), device=self.args.device)


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    args = TrainingArguments(
        output_dir=os.path.join("/tmp", f"recipe_tags_{os.environ.get('MASTER_PORT', '0')}"),
        per_device_train_batch_size=PER_DEVICE,
        num_train_epochs=1,
        learning_rate=2e-3,
        logging_steps=20,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        ddp_backend="gloo",
        ddp_find_unused_parameters=False,
        remove_unused_columns=False,
        disable_tqdm=True,
        seed=3,
    )
    trainer = RecipeTrainer(model=RecipeEncoder(), args=args, train_dataset=RecipeTexts())
    trainer.train()


if __name__ == "__main__":
    main()
