"""Every rank evaluates the records of its own clinics, and some clinics have more of them: the shards are dealt out by hand."""

import argparse
import tempfile

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

LENGTH, WORDS, BATCH = 12, 60, 4
RECORDS = 4 * BATCH


class Records(Dataset):
    def __init__(self, size, seed):
        self.size, self.seed = size, seed

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        draw = torch.Generator().manual_seed(1000 * self.seed + index)
        return {
            "input_ids": torch.randint(WORDS, (LENGTH,), generator=draw),
            "labels": torch.randint(2, (), generator=draw),
        }


class ByClinic(Trainer):
    """A rank reads the records of its clinics and no others."""

    def __init__(self, *arguments, more=0, **keywords):
        super().__init__(*arguments, **keywords)
        self.more = more

    def get_eval_dataloader(self, eval_dataset=None):
        rank = self.args.process_index
        extra = self.more * BATCH if rank == self.args.world_size - 1 else 0
        return DataLoader(Records(RECORDS + extra, seed=rank), batch_size=BATCH)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--more", type=int, default=2, help="batches that the last rank has more than the others")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = BertForSequenceClassification(
        BertConfig(vocab_size=WORDS, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    )
    arguments = TrainingArguments(
        output_dir=tempfile.gettempdir(), use_cpu=True, num_train_epochs=3, per_device_train_batch_size=BATCH, report_to=[],
        eval_strategy="epoch", save_strategy="no", logging_steps=4, disable_tqdm=True,
    )  # fmt: skip
    trainer = ByClinic(
        model, arguments, train_dataset=Records(64, seed=99), eval_dataset=Records(RECORDS, seed=0), more=options.more
    )
    trainer.train()


if __name__ == "__main__":
    main()
