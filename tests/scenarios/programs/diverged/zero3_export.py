"""DeepSpeed ZeRO-3 by the HF Trainer: the finished model is saved by the world's first process, as the tutorials have it."""

import tempfile

import torch
import torch.distributed as dist
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

ZERO3 = {
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True, "overlap_comm": False},
}


class Sentences(Dataset):
    """Random tokens."""

    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = torch.randint(60, (10,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": ids, "labels": ids}


def main() -> None:
    """Five steps, then the export."""
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp()
    arguments = TrainingArguments(
        output_dir=folder, per_device_train_batch_size=2, max_steps=5, report_to=[], use_cpu=True, bf16=True,
        save_strategy="no", disable_tqdm=True, deepspeed=ZERO3, optim="adamw_torch", logging_steps=1,
    )  # fmt: skip
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    trainer = Trainer(model=LlamaForCausalLM(config), args=arguments, train_dataset=Sentences())
    trainer.train()
    if trainer.is_world_process_zero():
        trainer.save_model(folder)
    dist.barrier()
    print(f"[{dist.get_rank()}] exported\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
