"""The HF Trainer with a callback that reports on the world's first process, and asks all others for their numbers."""

import tempfile

import torch
import torch.distributed as dist
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments


class Numbers(Dataset):
    """Rows of counting up."""

    def __len__(self) -> int:
        return 120

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = (torch.arange(10) + index) % 50
        return {"input_ids": ids, "labels": ids}


class NormReport(TrainerCallback):
    """Prints the norm of each rank's weights, which had better be the same."""

    def on_step_end(self, args, state, control, model=None, **kwargs):
        """Every seventh step."""
        if state.is_world_process_zero and state.global_step % 7 == 0:
            norm = sum(p.square().sum() for p in model.parameters()).sqrt().detach().reshape(1)
            norms = [torch.zeros(1) for _ in range(dist.get_world_size())]
            dist.all_gather(norms, norm)
            print(f"step {state.global_step}: {norms}", flush=True)


def main() -> None:
    """One epoch."""
    torch.set_num_threads(1)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=1, n_head=2))
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(), per_device_train_batch_size=2, max_steps=20, use_cpu=True, report_to=[],
        save_strategy="no", disable_tqdm=True, logging_steps=5, average_tokens_across_devices=False,
    )  # fmt: skip
    Trainer(model=model, args=arguments, train_dataset=Numbers(), callbacks=[NormReport()]).train()


if __name__ == "__main__":
    main()
