"""Hugging Face Trainer with DeepSpeed, ZeRO-3: a small Llama is trained and written to a folder."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

ZERO3 = {
    "train_micro_batch_size_per_gpu": "auto",
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True},
}


class Dialogues(Dataset):
    """Random ones."""

    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        words = torch.randint(3, 64, (16,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": words, "labels": words}


def main() -> None:
    """A few steps, and the folder."""
    torch.manual_seed(0)
    folder = tempfile.mkdtemp()
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=4,
        max_steps=6,
        logging_steps=3,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        bf16=True,
        ddp_backend="gloo",
        optim="adamw_torch",
        deepspeed=ZERO3,
    )
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    trainer = Trainer(model=LlamaForCausalLM(config), args=arguments, train_dataset=Dialogues())
    trainer.train()
    if trainer.is_world_process_zero():
        trainer.save_model(folder)
        print(f"written to {folder}")
    trainer.accelerator.wait_for_everyone()


if __name__ == "__main__":
    main()
