"""The HF Trainer on an IterableDataset that splits itself by rank and knows its own length, which is not the same everywhere."""

import os
import tempfile
from collections.abc import Iterator

import torch
from torch.utils.data import IterableDataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


class Corpus(IterableDataset):
    """Every world-th document of a corpus, from this rank's on."""

    def __init__(self, documents: int) -> None:
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.mine = range(rank, documents, world)

    def __len__(self) -> int:
        return len(self.mine)

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        """Token ids that are their own labels."""
        for number in self.mine:
            ids = torch.randint(64, (12,), generator=torch.Generator().manual_seed(number))
            yield {"input_ids": ids, "labels": ids}


def main() -> None:
    """One epoch."""
    torch.set_num_threads(1)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(), per_device_train_batch_size=1, num_train_epochs=1, use_cpu=True, report_to=[],
        save_strategy="no", logging_steps=5, disable_tqdm=True, average_tokens_across_devices=False,
        accelerator_config={"dispatch_batches": False, "split_batches": False},
    )  # fmt: skip
    trainer = Trainer(model=LlamaForCausalLM(config), args=arguments, train_dataset=Corpus(44))
    # The corpus is split already: each rank is to have all of what its own loader gives.
    trainer.get_train_dataloader = lambda: torch.utils.data.DataLoader(trainer.train_dataset, batch_size=1)
    trainer.train()
    trainer.accelerator.wait_for_everyone()
    trainer.save_model()


if __name__ == "__main__":
    main()
