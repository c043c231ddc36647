"""Fine-tuning with checkpoints that hangs once, at a random step, and goes on from its last checkpoint when it is started again.

In the first start rank 1 reads a sample from storage that does not answer: a pipe without a writer. Run by any launcher,
with 2 ranks; needs transformers and accelerate. ``--folder`` keeps the checkpoints, and in ``steps.jsonl`` a line for each step.
"""

import argparse
import json
import os
import random
import tempfile
import time
from pathlib import Path

import torch
import transformers
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

RANK = int(os.environ["RANK"])
VOCABULARY = 64
BATCH = 2
STEP_S = 0.2


def say(rank: int, text: str) -> None:
    """Print one line in one piece (Python under torchrun is unbuffered)."""
    print(f"[rank {rank}] {text}\n", end="", flush=True)


class Sentences(Dataset):
    """Random tokens; the sample that is loaded as number ``lost_sample`` is in the pipe."""

    def __init__(self, pipe: Path, lost_sample: int) -> None:
        self.pipe, self.lost_sample = pipe, lost_sample
        self.loaded = 0

    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> dict:
        self.loaded += 1
        if self.loaded == self.lost_sample:
            with self.pipe.open("r+b", buffering=0) as file:
                file.read(16)
        tokens = torch.randint(VOCABULARY, (12,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens.clone()}


class Progress(TrainerCallback):
    """One line a step and rank, and a record of rank 0's steps."""

    def __init__(self, record: Path) -> None:
        self.record = record

    def on_step_end(self, _args, state, _control, **_rest):
        say(RANK, f"step {state.global_step}/{state.max_steps}")
        if RANK == 0:
            with self.record.open("a") as record:
                record.write(json.dumps({"step": state.global_step, "at_s": time.time(), "pid": os.getpid()}) + "\n")
        time.sleep(STEP_S)


def main() -> None:
    """Train to the last step, from the last checkpoint."""
    parser = argparse.ArgumentParser()
    default = Path(tempfile.gettempdir()) / f"hangwatch-recover-{os.environ.get('TORCHELASTIC_RUN_ID', 'job')}"
    parser.add_argument("--folder", type=Path, default=default)
    parser.add_argument(
        "--local_rank", "--local-rank", type=int, help="given by some launchers; the environment has it too"
    )
    parser.add_argument("--steps", type=int, default=24)
    options = parser.parse_args()
    folder = options.folder
    torch.set_num_threads(1)
    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = get_last_checkpoint(str(folder))
    arguments = TrainingArguments(
        output_dir=str(folder),
        use_cpu=True,
        max_steps=options.steps,
        per_device_train_batch_size=BATCH,
        eval_strategy="no",
        logging_steps=100,
        save_strategy="steps",
        save_steps=4,
        save_total_limit=2,
        report_to=[],
        disable_tqdm=True,
        ddp_find_unused_parameters=False,
    )
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
    )
    # In a step beyond the first checkpoint, which takes BATCH samples.
    lost_sample = BATCH * random.randint(7, options.steps - 4) if checkpoint is None and RANK == 1 else 0  # noqa: S311
    pipe = folder / f"samples-{os.getpid()}"
    if lost_sample:
        os.mkfifo(pipe)
    trainer = Trainer(
        model=LlamaForCausalLM(config),
        args=arguments,
        train_dataset=Sentences(pipe, lost_sample),
        callbacks=[Progress(folder / "steps.jsonl")],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    say(RANK, f"training from {Path(checkpoint).name if checkpoint else 'the start'}")
    trainer.train(resume_from_checkpoint=checkpoint)
    say(RANK, "done")


if __name__ == "__main__":
    main()
