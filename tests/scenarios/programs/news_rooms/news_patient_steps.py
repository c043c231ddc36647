"""Continues a language model on the house style guide with transformers' Trainer: few, very large batches by accumulation."""
import time

import torch
from torch.utils.data import Dataset
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, Trainer, TrainingArguments, set_seed


class StyleGuide(Dataset):
    """Windows over the guide, which the content system gives out at its own pace."""

    def __init__(self, window=48):
        self.text = torch.randint(2, 1000, (60_000,), generator=torch.Generator().manual_seed(1))
        self.window = window

    def __len__(self):
        return len(self.text) - self.window

    def __getitem__(self, i):
        ids = self.text[i : i + self.window].clone()
        time.sleep(0.012)
        return {"input_ids": ids, "labels": ids}


def main():
    set_seed(7)
    config = GPTNeoXConfig(vocab_size=1000, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, max_position_embeddings=128)
    args = TrainingArguments(
        output_dir="style", use_cpu=True, max_steps=2, per_device_train_batch_size=8, gradient_accumulation_steps=80,
        learning_rate=1e-3, logging_steps=1, save_strategy="no", report_to=[], disable_tqdm=True,
    )
    trainer = Trainer(GPTNeoXForCausalLM(config), args, train_dataset=StyleGuide())
    trainer.train()
    print(f"seen {trainer.state.global_step} steps", flush=True)


if __name__ == "__main__":
    main()
