"""HF Trainer: stories; after each evaluation the main process tells a long one, and the others wait until it is told."""

import tempfile
import time

import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments


def sentences(count: int, seed: int) -> list[dict[str, torch.Tensor]]:
    """Of twelve words."""
    rows = torch.randint(0, 40, (count, 12), generator=torch.Generator().manual_seed(seed))
    return [{"input_ids": row, "labels": row} for row in rows]


class Teller(TrainerCallback):
    """Shows what the model has learnt."""

    @torch.no_grad()
    def on_evaluate(self, args, state, control, model=None, **kwargs):
        """Told by the main process."""
        if state.is_world_process_zero:
            model.eval()
            story: list[int] = []
            start = time.monotonic()
            while time.monotonic() - start < 11:
                begin = torch.tensor([[len(story) % 40]])
                told = model.generate(begin, max_new_tokens=20, do_sample=True, pad_token_id=0)
                story += told[0].tolist()
            model.train()
            print(f"step {state.global_step}: a story of {len(story)} words")
        dist.barrier()


def main() -> None:
    """Sixteen steps with two evaluations."""
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="stories-"),
        per_device_train_batch_size=4,
        max_steps=16,
        eval_strategy="steps",
        eval_steps=8,
        logging_steps=4,
        save_strategy="no",
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
    )
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_positions=32, n_embd=16, n_layer=1, n_head=2))
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=sentences(200, seed=1),
        eval_dataset=sentences(16, seed=2),
        callbacks=[Teller()],
    )
    trainer.train()


if __name__ == "__main__":
    main()
