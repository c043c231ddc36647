"""Hugging Face Trainer: a small Llama learns from labels and from a teacher's scores; both parts of the loss are logged."""

import tempfile

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


class Sentences(Dataset):
    """Random words, and what a teacher thinks of each."""

    def __len__(self) -> int:
        return 960

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(index)
        words = torch.randint(3, 64, (16,), generator=generator)
        return {"input_ids": words, "labels": words, "teacher": torch.randn(64, generator=generator)}


class DistilTrainer(Trainer):
    """Cross entropy and a term for the teacher."""

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        teacher = inputs.pop("teacher").log_softmax(dim=-1)
        outputs = model(**inputs)
        student = outputs.logits.mean(dim=1).log_softmax(dim=-1)
        distance = nn.functional.kl_div(student, teacher, log_target=True, reduction="batchmean")
        if self.is_world_process_zero() and (self.state.global_step + 1) % self.args.logging_steps == 0:
            everywhere = self.accelerator.gather(distance.detach())
            self.log({"hard": outputs.loss.item(), "soft": everywhere.mean().item()})
        loss = outputs.loss + 0.5 * distance
        return (loss, outputs) if return_outputs else loss


def main() -> None:
    """Eighty steps."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=32,
    )
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=4,
        max_steps=80,
        logging_steps=10,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo",
        remove_unused_columns=False,
    )
    DistilTrainer(model=LlamaForCausalLM(config), args=arguments, train_dataset=Sentences()).train()


if __name__ == "__main__":
    main()
