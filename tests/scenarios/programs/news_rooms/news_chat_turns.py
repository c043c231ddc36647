"""Instruction tuning for the readers' assistant: only the answers of a conversation are learnt."""
import dataclasses
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


@dataclasses.dataclass
class Conversations:
    """Conversations as ids and labels; questions have label -100."""

    size: int = 4000
    length: int = 40
    cut: range = range(720, 744)  # long questions, of which the answer falls behind the cut

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        ids = torch.randint(3, 256, (self.length,), generator=g)
        question = self.length if i in self.cut and i % 24 < 8 else int(torch.randint(8, 24, (1,), generator=g))
        labels = ids.clone()
        labels[:question] = -100
        return {"input_ids": ids, "labels": labels, "attention_mask": torch.ones_like(ids)}


class AnswerTrainer(Trainer):
    """Learns from answers; conversations without one cost nothing."""

    def _get_train_sampler(self, *args, **kwargs):
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def training_step(self, model, inputs, num_items_in_batch=None):
        time.sleep(0.04)
        if (inputs["labels"] == -100).all():
            return torch.zeros((), device=self.args.device)
        return super().training_step(model, inputs, num_items_in_batch)


def model():
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    ))


if __name__ == "__main__":
    torch.manual_seed(8)
    trainer = AnswerTrainer(
        model=model(),
        args=TrainingArguments(
            output_dir="assistant", use_cpu=True, max_steps=150, per_device_train_batch_size=8, learning_rate=1e-3,
            logging_steps=10, save_strategy="no", report_to=[], disable_tqdm=True, average_tokens_across_devices=False,
        ),
        train_dataset=Conversations(),
    )
    trainer.train()
