"""The control for the tuple-labels demo: the labels are a tuple, but of the same structure on every rank. It ends well.

Run by ``torchrun --nproc-per-node 2``; needs transformers and accelerate.
"""

import os
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments


class Captions(Dataset):
    """Captions of one image each."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict:
        tokens = (torch.arange(8) + index) % 64
        return {"input_ids": tokens, "labels": tokens.clone(), "image_size": (336.0, 224.0)}


def collate(captions: list[dict]) -> dict:
    """One size tensor a caption, so as many on every rank."""
    return {
        "input_ids": torch.stack([caption["input_ids"] for caption in captions]),
        "labels": torch.stack([caption["labels"] for caption in captions]),
        "metadata": tuple(torch.tensor(caption["image_size"]) for caption in captions),
    }


class CaptionerForCausalLM(LlamaForCausalLM):
    """A tiny model that leaves the sizes to the metrics."""

    def forward(self, metadata=None, **inputs):
        del metadata
        return super().forward(**inputs)


class Progress(TrainerCallback):
    """A line a step and an evaluation."""

    def on_step_end(self, _args, state, _control, **_rest):
        print(f"[rank {os.environ['RANK']}] step {state.global_step}\n", end="", flush=True)

    def on_evaluate(self, _args, _state, _control, **_rest):
        print(f"[rank {os.environ['RANK']}] evaluated\n", end="", flush=True)


def main() -> None:
    """Four steps, two evaluations."""
    torch.set_num_threads(1)
    config = LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
    )
    arguments = TrainingArguments(
        output_dir=tempfile.gettempdir(),
        use_cpu=True,
        max_steps=4,
        per_device_train_batch_size=2,
        per_device_eval_batch_size=2,
        eval_strategy="steps",
        eval_steps=2,
        logging_steps=100,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
        ddp_find_unused_parameters=False,
        label_names=["labels", "metadata"],
    )
    Trainer(
        model=CaptionerForCausalLM(config),
        args=arguments,
        train_dataset=Captions(),
        eval_dataset=Captions(),
        data_collator=collate,
        compute_metrics=lambda prediction: {"labels": float(len(prediction.label_ids))},
        callbacks=[Progress()],
    ).train()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
