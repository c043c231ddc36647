"""HF Trainer: a model of dialogues that counts in evaluation how many of the words to be said were right."""

import tempfile

import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

WORDS, LENGTH = 50, 12


def dialogues(count: int, silent: range, seed: int) -> list[dict[str, torch.Tensor]]:
    """The user's words are not learnt; in some dialogues only the user speaks."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for number in range(count):
        words = torch.randint(0, WORDS, (LENGTH,), generator=generator)
        said = LENGTH if number in silent else LENGTH // 2
        labels = words.clone()
        labels[:said] = -100
        rows.append({"input_ids": words, "labels": labels})
    return rows


class DialogueTrainer(Trainer):
    """Counts words while it evaluates."""

    right = torch.zeros(2)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        """The mean over the words that count."""
        logits = model(input_ids=inputs["input_ids"]).logits[:, :-1]
        labels = inputs["labels"][:, 1:]
        total = torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels, reduction="sum")
        loss = total / (labels != -100).sum().clamp(min=1)
        return (loss, {"logits": logits}) if return_outputs else loss

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        """The loss of one batch, and the words of it that were right on all ranks."""
        loss, logits, _ = super().prediction_step(model, inputs, False, ignore_keys)
        targets = inputs["labels"][:, 1:]
        answered = targets != -100
        if answered.any():
            hits = (logits.argmax(dim=-1) == targets)[answered].sum()
            counts = torch.stack([hits.float(), answered.sum().float()])
            dist.all_reduce(counts)
            self.right = self.right + counts
        return loss, None, None


def main() -> None:
    """Sixteen steps with an evaluation after each eighth."""
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="dialogues-"),
        per_device_train_batch_size=4,
        per_device_eval_batch_size=2,
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
    model = GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_positions=32, n_embd=16, n_layer=1, n_head=2))
    trainer = DialogueTrainer(
        model=model,
        args=args,
        train_dataset=dialogues(200, range(0), seed=1),
        eval_dataset=dialogues(36, range(20, 22), seed=2),
    )
    trainer.train()
    print(f"right: {trainer.right[0] / trainer.right[1]:.1%}")


if __name__ == "__main__":
    main()
