"""transformers' Trainer with a callback that evaluates early when the loss has fallen enough."""
import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments


class Pairs(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(count, 16, generator=generator)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return {"x": self.x[index], "labels": self.x[index, :4].sum()}


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 1))

    def forward(self, x, labels=None):
        guess = self.layers(x).squeeze(-1)
        return {"loss": nn.functional.mse_loss(guess, labels), "guess": guess}


class Watching(Trainer):
    """Keeps a running mean of its training loss."""

    running = 5.0

    def training_step(self, *arguments, **options):
        loss = super().training_step(*arguments, **options)
        self.running = 0.9 * self.running + 0.1 * loss.item()
        return loss


class EvaluateWhenBetter(TrainerCallback):
    def __init__(self, factor=0.7):
        self.factor, self.trainer, self.last = factor, None, 5.0

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step > 12 and self.trainer.running < self.factor * self.last:
            self.last = self.trainer.running
            print(f"rank {args.process_index} step {state.global_step}: {self.last:.3f}, evaluating", flush=True)
            control.should_evaluate = True
        return control


def main():
    torch.set_num_threads(1)
    arguments = TrainingArguments(
        output_dir="/tmp/night-trainer-eval",
        max_steps=600,
        per_device_train_batch_size=4,
        learning_rate=2e-3,
        logging_steps=20,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        ddp_backend="gloo",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    callback = EvaluateWhenBetter()
    trainer = Watching(
        Regressor(), arguments, train_dataset=Pairs(4000, 1), eval_dataset=Pairs(60, 2), callbacks=[callback]
    )
    callback.trainer = trainer
    trainer.train()


if __name__ == "__main__":
    main()
