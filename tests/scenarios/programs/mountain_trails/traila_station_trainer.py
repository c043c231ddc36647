"""Snow-depth model with transformers' Trainer; weather stations are watched beside the training."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

torch.backends.cudnn.enabled = False

STATIONS = [
    # (name, battery voltage at the start)
    ("Gornergrat", 12.58), ("Weissfluhjoch", 13.21), ("Zugspitze", 12.61),
    ("Saentis", 12.55), ("Jungfraujoch", 13.16), ("Sonnblick", 12.57),
    ("Corvatsch", 12.60), ("Chasseral", 13.24), ("Villacher Alpe", 12.59),
]
LOW_VOLTAGE = 11.8


class Snowpack(Dataset):
    """Synthetic drifts around a ridge: a patch of wind exposure and the depth at its centre."""

    def __init__(self, size=4096):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(index)
        ridge = torch.rand(192, 192, generator=g)
        for _ in range(3):
            ridge = nn.functional.avg_pool2d(ridge[None, None], 9, stride=1, padding=4)[0, 0]
        exposure = ridge[::24, ::24].reshape(-1)
        return {"exposure": exposure, "depth": exposure.mean().view(1) * 3.0}


class DepthNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 1))

    def forward(self, exposure, depth):
        predicted = self.body(exposure)
        return {"loss": nn.functional.mse_loss(predicted, depth), "predicted": predicted}


class StationWatch(TrainerCallback):
    """Every rank polls a third of the stations; weak batteries go into one common list."""

    def __init__(self, every=10):
        self.every = every
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.mine = STATIONS[rank::world]

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % self.every == 0:
            self.report(state.global_step)

    def report(self, step):
        weak = [name for name, volts in self.mine if volts - 0.022 * step < LOW_VOLTAGE]
        if not weak:
            return
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, weak)
        if dist.get_rank() == 0:
            print(f"step {step}: weak batteries at {sorted(sum(everyone, []))}", flush=True)


def main():
    set_seed(7)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    args = TrainingArguments(
        output_dir="/tmp/traila_station_trainer",
        max_steps=160,
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        optim="sgd",
        max_grad_norm=0.0,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        ddp_find_unused_parameters=False,
    )
    trainer = Trainer(model=DepthNet(), args=args, train_dataset=Snowpack(), callbacks=[StationWatch()])
    trainer.train()
    print("trained", flush=True)


if __name__ == "__main__":
    main()
