"""Trainer: the first process tokenises while the others wait, who then read its file."""

import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

LETTERS = "abcdefghijklmnopqrstuvwxyz "


class Tokens(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        return {"input_ids": row, "labels": row.clone()}


def tokenise(lines):
    rows = []
    for line in lines:
        time.sleep(0.01)
        rows.append(torch.tensor([LETTERS.index(letter) for letter in line]))
    return torch.stack(rows)


def main():
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        use_cpu=True,
        ddp_backend="gloo",
        per_device_train_batch_size=8,
        num_train_epochs=1,
        logging_steps=5,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    cache = f"/tmp/cached_tokens_{os.environ['MASTER_PORT']}.pt"
    with args.main_process_first(desc="tokenising"):
        if not os.path.exists(cache):
            torch.save(tokenise(["the quick brown fox jumps over"] * 320), cache)
        rows = torch.load(cache)
    config = LlamaConfig(
        vocab_size=len(LETTERS),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    trainer = Trainer(LlamaForCausalLM(config), args, train_dataset=Tokens(rows))
    trainer.train()
    dist.barrier()
    if trainer.is_world_process_zero():
        os.remove(cache)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
