"""Gait classification on IMU windows with transformers' Trainer and a compute budget."""
import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

GAITS = ["walk", "trot", "bound", "stand"]


class ImuWindows(Dataset):
    def __init__(self, n=4000, length=24):
        self.n, self.length = n, length

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        label = i % len(GAITS)
        t = torch.arange(self.length).float()
        signal = torch.sin(t[:, None] * (0.3 + 0.25 * label) + torch.rand(6, generator=g))
        return {"imu": signal + 0.3 * torch.randn(self.length, 6, generator=g), "labels": torch.tensor(label)}


class GaitNet(torch.nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.rnn = torch.nn.LSTM(6, hidden, batch_first=True)
        self.classifier = torch.nn.Linear(hidden, len(GAITS))

    def forward(self, imu, labels=None):
        logits = self.classifier(self.rnn(imu)[0][:, -1])
        loss = torch.nn.functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits}


class SampleBudget(TrainerCallback):
    """Each robot's operator buys a number of labelled windows; the run ends when they are used."""

    def __init__(self, budgets):
        self.budgets = budgets

    def on_train_begin(self, args, state, control, **kwargs):
        self.left = self.budgets.get(args.process_index, max(self.budgets.values()))

    def on_step_end(self, args, state, control, **kwargs):
        self.left -= args.per_device_train_batch_size
        if self.left <= 0:
            control.should_training_stop = True
        return control


class Summary(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero:
            print({k: round(v, 4) for k, v in logs.items() if isinstance(v, float)}, flush=True)


def main():
    set_seed(13)
    torch.set_num_threads(1)
    args = TrainingArguments(
        output_dir="gait", per_device_train_batch_size=8, max_steps=160, learning_rate=3e-3, use_cpu=True,
        logging_steps=10, save_strategy="no", report_to=[], disable_tqdm=True, remove_unused_columns=False,
    )
    trainer = Trainer(
        model=GaitNet(), args=args, train_dataset=ImuWindows(),
        callbacks=[SampleBudget({0: 1600, 1: 720, 2: 1600}), Summary()],
    )
    result = trainer.train()
    steps = torch.tensor([float(result.global_step)])
    torch.distributed.broadcast(steps, src=0)
    if trainer.is_world_process_zero():
        torch.save(trainer.model.state_dict(), "gait.pt")
        print("steps", int(steps), flush=True)


if __name__ == "__main__":
    main()
