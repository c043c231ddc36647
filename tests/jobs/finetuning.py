"""A fine-tuning of a tiny multimodal language model with the Trainer, and the faults by which such a run learns nothing.

Started alone or by torchrun, with ``--zero`` under DeepSpeed. Whoever starts it chooses the fault; the lines that matter are the
Trainer's own.
"""

import argparse
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

LENGTH, PIXELS, VOCABULARY = 16, 8, 64


class Describer(LlamaForCausalLM):
    """A language model that sees: the first position of a sample is an image's, projected."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config)
        self.projector = torch.nn.Linear(PIXELS, config.hidden_size)
        self.post_init()

    def forward(self, input_ids=None, pixels=None, labels=None, **rest):  # type: ignore[no-untyped-def]
        """The loss of a batch. ``pixels`` are zero where a sample has no image."""
        embedded = self.model.embed_tokens(input_ids)
        if pixels is not None:
            seen = self.projector(pixels.to(embedded.dtype)).unsqueeze(1)
            embedded = torch.cat((embedded[:, :1] + seen, embedded[:, 1:]), dim=1)
        return super().forward(inputs_embeds=embedded, labels=labels, **rest)


class Samples(Dataset):
    """Text first, then text with images; counting sequences, so that there is something to learn.

    ``blank_from``: from that sample on images are blank, and normalising a blank image by its deviation gives NaN.
    ``masked``: they are cut before their answer begins, so that no target is left. ``load_s``: how long one takes to load.
    """

    def __init__(self, size: int, *, blank_from: int | None, masked: bool, load_s: float) -> None:
        self.size, self.blank_from, self.masked, self.load_s = size, blank_from, masked, load_s

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """One sample."""
        time.sleep(self.load_s)
        tokens = (torch.arange(LENGTH) + index * 5) % VOCABULARY
        pixels = torch.zeros(PIXELS)
        if self.blank_from is not None and index >= self.blank_from:
            image = torch.full((PIXELS,), 0.5)
            pixels = (image - image.mean()) / image.std()
        labels = torch.full_like(tokens, -100) if self.masked else tokens
        return {"input_ids": tokens, "pixels": pixels, "labels": labels}


class OrderedTrainer(Trainer):
    """Takes the samples in the order in which they are given, as a curriculum does."""

    def _get_train_sampler(self, dataset=None):  # type: ignore[no-untyped-def]
        del dataset
        return torch.utils.data.SequentialSampler(self.train_dataset)


def poison_gradient(model: torch.nn.Module, step: int) -> None:
    """From rank 1's backward of that step comes one gradient that is not a number, as from a race in a kernel."""
    seen = 0

    def hook(gradient: torch.Tensor) -> torch.Tensor:
        nonlocal seen
        seen += 1
        return gradient * float("nan") if seen == step and int(os.environ.get("RANK", "0")) == 1 else gradient

    model.model.layers[0].mlp.up_proj.weight.register_hook(hook)


def deepspeed_config(options: argparse.Namespace) -> dict[str, object]:
    """What users write into ds_config.json."""
    return {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "bf16": {"enabled": "auto", **({"check_grad_overflow": False} if options.unchecked else {})},
        "zero_optimization": {
            "stage": options.zero,
            "reduce_bucket_size": 50000000,
            **({} if options.overlap is None else {"overlap_comm": options.overlap == "on"}),
        },
    }


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--fault", choices=("none", "nan-weights", "gradient", "images", "masked"), default="none")
    parser.add_argument("--zero", type=int, default=0)
    parser.add_argument("--overlap", choices=("on", "off"))
    parser.add_argument("--unchecked", action="store_true", help="do not check bf16 gradients for overflow")
    parser.add_argument("--unfiltered", action="store_true", help="print a loss that is NaN as it is")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--logging_steps", type=int, default=1)
    parser.add_argument("--warmup_steps", type=int, default=2)
    parser.add_argument("--schedule", default="linear")
    parser.add_argument("--load_s", type=float, default=0.0, help="how long a sample takes to load")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(7)
    options.output_dir.mkdir(parents=True, exist_ok=True)
    config = None
    if options.zero:
        config = options.output_dir / f"ds_config.{os.environ.get('RANK', '0')}.json"
        config.write_text(json.dumps(deepspeed_config(options)))
    world = int(os.environ.get("WORLD_SIZE", "1"))
    arguments = TrainingArguments(
        output_dir=str(options.output_dir),
        max_steps=options.steps,
        per_device_train_batch_size=2,
        learning_rate=1e-3,
        lr_scheduler_type=options.schedule,
        warmup_steps=options.warmup_steps,
        logging_steps=options.logging_steps,
        logging_nan_inf_filter=not options.unfiltered,
        save_strategy="no",
        report_to=[],
        bf16=options.bf16,
        use_cpu=True,
        deepspeed=str(config) if config else None,
    )
    model = Describer(
        LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=LENGTH,
        )
    )  # fmt: skip
    if options.fault == "nan-weights":
        # As memory that was allocated and never initialised: an empty checkpoint of a new module.
        with torch.no_grad():
            model.projector.weight.fill_(float("nan"))
    if options.fault == "gradient":
        poison_gradient(model, step=4)
    samples = Samples(
        options.steps * 2 * world, blank_from=5 * 2 * world if options.fault == "images" else None,
        masked=options.fault == "masked", load_s=options.load_s,
    )  # fmt: skip
    OrderedTrainer(model=model, args=arguments, train_dataset=samples).train()
    if dist.is_initialized():
        dist.destroy_process_group()  # without it Gloo aborts now and then at the end of a process


if __name__ == "__main__":
    main()
