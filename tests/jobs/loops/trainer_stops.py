"""transformers' Trainer on two ranks. A callback stops the training by the loss of its own rank's batch: rank 1's.

Rank 1 goes on to the evaluation; rank 0 is still in a backward pass.
"""

import tempfile

import torch
from torch.utils.data import TensorDataset
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


class StopWhenGood(TrainerCallback):
    """Stops once a batch of this rank is good enough."""

    def on_step_end(self, args, state, control, **rest):  # type: ignore[no-untyped-def]
        if state.global_step > 4 and rest["model"].last_loss < 0.5:
            control.should_training_stop = True


def collate(rows):  # type: ignore[no-untyped-def]
    features, labels = zip(*rows, strict=True)
    return {"features": torch.stack(features), "labels": torch.stack(labels)}


torch.manual_seed(1)
# Every second batch, which is rank 1's, is easy.
hard = torch.arange(400) // 4 % 2 == 0
rows = TensorDataset(torch.zeros(400, 8), torch.where(hard, 9.0, 0.0).unsqueeze(1))


class InOrder(Trainer):
    """Takes the rows in their order."""

    def _get_train_sampler(self, dataset=None):  # type: ignore[no-untyped-def]
        del dataset
        return torch.utils.data.SequentialSampler(self.train_dataset)


arguments = TrainingArguments(
    tempfile.mkdtemp(), max_steps=40, per_device_train_batch_size=4, learning_rate=0.0, save_strategy="no", report_to=[],
    use_cpu=True, ddp_find_unused_parameters=False,
)  # fmt: skip
trainer = InOrder(
    Regression(), arguments, data_collator=collate, train_dataset=rows, eval_dataset=rows, callbacks=[StopWhenGood()]
)
trainer.train()
trainer.evaluate()
