"""Hugging Face Trainer with a DataLoader of its own: every process reads the files of wine reviews that fall to it."""

import tempfile

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

FILES = [f"reviews-{number:02d}.txt" for number in range(11)]
PER_FILE = 16


class Reviews(IterableDataset):
    """The reviews of some files, one after the other."""

    def __init__(self, files: list[str]) -> None:
        self.files = files

    def __len__(self) -> int:
        return PER_FILE * len(self.files)

    def __iter__(self):
        for name in self.files:
            random = torch.Generator().manual_seed(int(name[8:10]))
            for _ in range(PER_FILE):
                words = torch.randint(3, 80, (20,), generator=random)
                yield {"input_ids": words, "labels": (words.sum() % 5).long()}


class FileTrainer(Trainer):
    """The files are shared out here, and not by accelerate."""

    def get_train_dataloader(self) -> DataLoader:
        files = FILES[self.args.process_index :: self.args.world_size]
        return DataLoader(Reviews(files), batch_size=self.args.per_device_train_batch_size)


def main() -> None:
    """One epoch; the model is written by the main process."""
    torch.manual_seed(0)
    folder = tempfile.mkdtemp()
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=4,
        num_train_epochs=1,
        average_tokens_across_devices=False,
        logging_steps=8,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo",
    )
    config = BertConfig(
        vocab_size=80,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        num_labels=5,
    )
    trainer = FileTrainer(BertForSequenceClassification(config), arguments, train_dataset=Reviews(FILES))
    trainer.train()
    dist.barrier()
    trainer.save_model(folder)


if __name__ == "__main__":
    main()
