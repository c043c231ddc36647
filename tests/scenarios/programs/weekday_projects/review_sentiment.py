"""Fine-tunes a small BERT on reviews with the Trainer and logs the throughput of the job."""

import tempfile
import time

import torch
import torch.distributed as dist
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments


class Reviews(torch.utils.data.Dataset):
    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(3)
        self.tokens = torch.randint(5, 90, (count, 12), generator=generator)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        row = self.tokens[index]
        return {"input_ids": row, "attention_mask": torch.ones_like(row), "labels": row[0] % 2}


class ThroughputCallback(TrainerCallback):
    """Adds samples per second to what is logged."""

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self.seen = 0
        self.began = time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        self.seen += self.batch_size

    def on_log(self, args, state, control, logs=None, **kwargs):
        if not state.is_world_process_zero or logs is None:
            return
        rate = torch.tensor(self.seen / (time.perf_counter() - self.began))
        dist.all_reduce(rate)
        logs["samples_per_s"] = rate.item()


def main() -> None:
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=4,
        max_steps=40,
        logging_steps=10,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        ddp_backend="gloo",
        disable_tqdm=True,
    )
    config = BertConfig(
        vocab_size=100, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=arguments,
        train_dataset=Reviews(400),
        callbacks=[ThroughputCallback(4)],
    )
    trainer.train()
    print("training is over", flush=True)


if __name__ == "__main__":
    main()
