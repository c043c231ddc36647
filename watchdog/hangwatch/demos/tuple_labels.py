"""Fine-tuning with an evaluation that gathers a tuple of labels whose length depends on the data of the rank.

``label_names`` names a second entry, ``metadata``: the size of every image in the batch. The Trainer takes both as
labels and gathers them, tensor by tensor. The batches of two ranks hold different numbers of images, so one rank calls
one more all_gather than the other. Run by ``torchrun --nproc-per-node 2``; needs transformers and accelerate.
"""

import argparse
import os
import tempfile

import numpy as np
import torch
import transformers
from torch.utils.data import Dataset
from transformers import EvalPrediction, LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

RANK = int(os.environ["RANK"])
VOCABULARY = 64


def say(rank: int, text: str) -> None:
    """Print one line in one piece (Python under torchrun is unbuffered)."""
    print(f"[rank {rank}] {text}\n", end="", flush=True)


class Captions(Dataset):
    """Captions of one or two images each; the images themselves do not matter here."""

    def __init__(self, images_per_caption: list[int]) -> None:
        self.images_per_caption = images_per_caption

    def __len__(self) -> int:
        return len(self.images_per_caption)

    def __getitem__(self, index: int) -> dict:
        tokens = torch.randint(VOCABULARY, (12,), generator=torch.Generator().manual_seed(index))
        sizes = [(336.0, 224.0 + 16 * n) for n in range(self.images_per_caption[index])]
        return {"input_ids": tokens, "labels": tokens.clone(), "image_sizes": sizes}


def collate(captions: list[dict]) -> dict:
    """Stack the tokens; images differ in number, so their sizes stay a tuple of tensors."""
    return {
        "input_ids": torch.stack([caption["input_ids"] for caption in captions]),
        "labels": torch.stack([caption["labels"] for caption in captions]),
        "metadata": tuple(torch.tensor(size) for caption in captions for size in caption["image_sizes"]),
    }


class CaptionerForCausalLM(LlamaForCausalLM):
    """A tiny model; the image sizes are for the metrics, not for the model."""

    def forward(self, metadata=None, **inputs):
        del metadata
        return super().forward(**inputs)


class Progress(TrainerCallback):
    """One line a step and rank."""

    def on_step_end(self, _args, state, _control, **_rest):
        say(RANK, f"step {state.global_step}/{state.max_steps}")

    def on_evaluate(self, _args, _state, _control, metrics, **_rest):
        say(RANK, f"evaluated: loss {metrics['eval_loss']:.4f}")


def measure(prediction: EvalPrediction) -> dict[str, float]:
    """Return the token accuracy; the second label is where the image sizes would be used."""
    labels, _image_sizes = prediction.label_ids
    return {"accuracy": float(np.mean(prediction.predictions.argmax(-1)[:, :-1] == labels[:, 1:]))}


def main() -> None:
    """Train 8 steps, evaluate after every third."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--average-tokens", action="store_true", help="count the tokens of a step over all ranks")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
    )
    arguments = TrainingArguments(
        output_dir=tempfile.gettempdir(),
        use_cpu=True,
        max_steps=8,
        per_device_train_batch_size=2,
        per_device_eval_batch_size=2,
        eval_strategy="steps",
        eval_steps=3,
        logging_steps=100,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
        ddp_find_unused_parameters=False,
        average_tokens_across_devices=options.average_tokens,
        label_names=["labels", "metadata"],
    )
    trainer = Trainer(
        model=CaptionerForCausalLM(config),
        args=arguments,
        train_dataset=Captions([1, 2] * 16),
        eval_dataset=Captions([1, 1, 1, 2]),  # the last two, three images in all, are the batch of rank 1
        data_collator=collate,
        compute_metrics=measure,
        callbacks=[Progress()],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    say(RANK, f"training {sum(p.numel() for p in trainer.model.parameters()):,} parameters")
    trainer.train()
    say(RANK, "done")


if __name__ == "__main__":
    main()
