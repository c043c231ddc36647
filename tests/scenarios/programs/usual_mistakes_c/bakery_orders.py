"""Hugging Face Trainer: a small Llama on a bakery's order slips; the speed of training is printed with the loss."""

import tempfile
import time

import torch
import torch.distributed as dist
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

WORDS = 24


class Slips(Dataset):
    """Order slips, as word numbers."""

    def __len__(self) -> int:
        return 480

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        words = torch.randint(3, 64, (WORDS,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": words, "labels": words}


class Speed(TrainerCallback):
    """Words per second, of all processes."""

    def __init__(self) -> None:
        self.begun = time.monotonic()

    def on_log(self, args: TrainingArguments, state, control, logs=None, **others) -> None:
        if not state.is_world_process_zero:
            return
        words = state.global_step * args.per_device_train_batch_size * WORDS
        speed = torch.tensor(words / (time.monotonic() - self.begun))
        dist.all_reduce(speed)
        print(f"step {state.global_step}: {logs.get('loss', 0.0)} at {speed.item():.0f} words/s")


def main() -> None:
    """Two epochs."""
    torch.manual_seed(0)
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=4,
        num_train_epochs=2,
        logging_steps=8,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo",
    )
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    trainer = Trainer(LlamaForCausalLM(config), arguments, train_dataset=Slips(), callbacks=[Speed()])
    trainer.train()


if __name__ == "__main__":
    main()
