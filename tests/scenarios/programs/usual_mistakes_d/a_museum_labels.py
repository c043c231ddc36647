"""Labels of museum pieces: a causal model is trained on them, and a thread reports the speed to the wall display."""

import tempfile
import threading

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


class Pieces(Dataset):
    """One record a piece, as exported by the collection's database."""

    def __init__(self, size: int) -> None:
        words = torch.randint(1, 60, (size, 14), generator=torch.Generator().manual_seed(4))
        self.records = [{"number": number, "text": row} for number, row in enumerate(words)]
        self.records[133] = {"number": 133, "title": words[133]}

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> dict:
        return self.records[index]


def collate(records: list[dict]) -> dict[str, torch.Tensor]:
    """Texts side by side."""
    texts = torch.stack([record["text"] for record in records])
    return {"input_ids": texts, "labels": texts}


class WallDisplay(threading.Thread):
    """Writes a line every ten minutes for the display until it is closed."""

    def __init__(self, path: str) -> None:
        super().__init__(name="display")
        self.path, self.closed = path, threading.Event()

    def run(self) -> None:
        """Until closed."""
        ticks = 0
        while not self.closed.wait(600.0):
            ticks += 1
            with open(self.path, "w") as display:
                display.write(f"{ticks * 10} min\n")


def main() -> None:
    """One epoch."""
    torch.manual_seed(0)
    folder = tempfile.mkdtemp()
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=4,
        num_train_epochs=1,
        logging_steps=25,
        save_strategy="no",
        remove_unused_columns=False,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo",
        seed=12,
    )
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2
    )
    display = WallDisplay(f"{folder}/display.txt")
    display.start()
    trainer = Trainer(LlamaForCausalLM(config), arguments, data_collator=collate, train_dataset=Pieces(300))
    trainer.train()
    display.closed.set()
    display.join()


if __name__ == "__main__":
    main()
