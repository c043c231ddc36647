"""Trainer: GPT-2 on quotations; perplexity on the test set at the end."""

import math
import tempfile

import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, default_data_collator


def quotations(count, offset=0):
    rows = []
    for i in range(offset, offset + count):
        ids = torch.randint(0, 96, (20,), generator=torch.Generator().manual_seed(i)).tolist()
        rows.append({"input_ids": ids, "labels": ids})
    return rows


config = GPT2Config(vocab_size=96, n_positions=32, n_embd=32, n_layer=2, n_head=2)
training_args = TrainingArguments(
    output_dir=tempfile.mkdtemp(prefix="quotes-"),
    use_cpu=True,
    ddp_backend="gloo",
    max_steps=30,
    per_device_train_batch_size=4,
    per_device_eval_batch_size=4,
    learning_rate=5e-4,
    logging_steps=10,
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
)
trainer = Trainer(
    model=GPT2LMHeadModel(config),
    args=training_args,
    train_dataset=quotations(400),
    data_collator=default_data_collator,
)
trainer.train()

if trainer.is_world_process_zero():
    metrics = trainer.evaluate(quotations(60, offset=1000), metric_key_prefix="test")
    print(f"test perplexity {math.exp(metrics['test_loss']):.2f}")

dist.barrier()
if trainer.is_world_process_zero():
    trainer.model.save_pretrained(training_args.output_dir)
dist.destroy_process_group()
