"""Hugging Face Trainer: support tickets are sorted; every checkpoint's files are copied to the archive in the background."""

import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments


class Tickets(Dataset):
    """Word numbers, and the desk a ticket goes to."""

    def __len__(self) -> int:
        return 480

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        words = torch.randint(3, 90, (16,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": words, "labels": (words[0] % 4).long()}


class Archive(TrainerCallback):
    """One background thread, so that the archive never sees two files at once; the last checkpoint is waited for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pool = ThreadPoolExecutor(max_workers=1)
        self.last = None

    def keep(self, checkpoint: Path) -> int:
        """All files of a checkpoint; says how many there were."""
        copies = [self.pool.submit(shutil.copy, path, self.folder) for path in checkpoint.iterdir() if path.is_file()]
        return len([copy.result() for copy in copies])

    def on_save(self, args, state, control, **others) -> None:
        if state.is_world_process_zero:
            if self.last is not None:
                print(f"archived: {self.last.result()} files")
            self.last = self.pool.submit(self.keep, Path(args.output_dir) / f"checkpoint-{state.global_step}")


def main() -> None:
    """Two epochs, a checkpoint every ten steps."""
    torch.manual_seed(0)
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=4,
        num_train_epochs=2,
        logging_steps=10,
        save_steps=10,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo",
    )
    config = BertConfig(
        vocab_size=90,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        num_labels=4,
    )
    archive = Archive(Path(tempfile.mkdtemp()))
    trainer = Trainer(BertForSequenceClassification(config), arguments, train_dataset=Tickets(), callbacks=[archive])
    trainer.train()


if __name__ == "__main__":
    main()
