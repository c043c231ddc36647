"""transformers' Trainer on two ranks. A callback of rank 0 sums up its gradients, after a batch that it finds bad.

Rank 1 answers with the all_reduce of its next backward pass, which has the same size. From then on each backward of rank 0 meets
the next one of rank 1, until the two hang in lines that are right: rank 1 evaluates, rank 0 is in its last backward.
"""

import tempfile

import torch
import torch.distributed as dist
from torch.utils.data import SequentialSampler, TensorDataset
from transformers import Trainer, TrainerCallback, TrainingArguments


class Regression(torch.nn.Module):
    """One layer that remembers the loss of its last batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
        self.last_loss = 0.0

    def forward(self, features, labels=None):  # type: ignore[no-untyped-def]
        predicted = self.layer(features)
        loss = torch.nn.functional.mse_loss(predicted, labels)
        self.last_loss = float(loss.detach())
        return {"loss": loss, "logits": predicted}


class WatchGradients(TrainerCallback):
    """Says how large the gradients are on all ranks, if the batch was bad here."""

    def on_pre_optimizer_step(self, args, state, control, **rest):  # type: ignore[no-untyped-def]
        model = rest["model"]
        if model.last_loss > 50:
            gradients = torch.cat([p.grad.flatten() for p in model.parameters()])
            dist.all_reduce(gradients)
            print("norm", gradients.norm())


class InOrder(Trainer):
    """Takes the rows in their order."""

    def _get_train_sampler(self, dataset=None):  # type: ignore[no-untyped-def]
        return SequentialSampler(self.train_dataset)


def collate(rows):  # type: ignore[no-untyped-def]
    features, labels = zip(*rows, strict=True)
    return {"features": torch.stack(features), "labels": torch.stack(labels)}


labels = torch.ones(400, 1)
labels[80:84] = 9.0  # the eleventh batch of rank 0
rows = TensorDataset(torch.zeros(400, 8), labels)
arguments = TrainingArguments(
    tempfile.mkdtemp(), max_steps=20, per_device_train_batch_size=4, learning_rate=0.0, save_strategy="no", report_to=[],
    use_cpu=True, ddp_find_unused_parameters=False,
)  # fmt: skip
trainer = InOrder(
    Regression(), arguments, data_collator=collate, train_dataset=rows, eval_dataset=rows, callbacks=[WatchGradients()]
)
trainer.train()
trainer.evaluate()
