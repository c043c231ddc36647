"""Wear of lift doors from motor currents, with transformers' Trainer."""
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

FEATURES = 8


class DoorRuns(Dataset):
    def __init__(self, size, noise, seed):
        generator = torch.Generator().manual_seed(seed)
        self.current = torch.randn(size, FEATURES, generator=generator)
        self.wear = self.current.sum(1, keepdim=True) * 0.3 + noise * torch.randn(size, 1, generator=generator)

    def __len__(self):
        return len(self.current)

    def __getitem__(self, index):
        time.sleep(0.008)  # one record from the controller's memory
        return {"current": self.current[index], "wear": self.wear[index]}


class WearModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(FEATURES, 1)

    def forward(self, current, wear):
        estimate = self.head(current)
        return {"loss": nn.functional.mse_loss(estimate, wear), "estimate": estimate}


class GoodEnough(TrainerCallback):
    """Ends the training when the doors of this site are known well enough."""

    def __init__(self, net, site, target=0.08, warmup=35):
        self.net, self.site, self.target, self.warmup = net, site, target, warmup

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step < self.warmup:
            return control
        with torch.no_grad():
            error = nn.functional.mse_loss(self.net.head(self.site.current), self.site.wear).item()
        if error < self.target:
            control.should_training_stop = True
        return control


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    arguments = TrainingArguments(
        output_dir="/tmp/ferrb_door_wear",
        max_steps=600,
        per_device_train_batch_size=8,
        learning_rate=2e-2,
        lr_scheduler_type="constant",
        use_cpu=True,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=4,
    )
    net = WearModel()
    noise = [0.7, 0.6, 0.05][arguments.process_index % 3]  # sites differ in the age of their sensors
    site = DoorRuns(200, noise, seed=50 + arguments.process_index)
    trainer = Trainer(
        model=net,
        args=arguments,
        train_dataset=DoorRuns(6000, 0.3, seed=7),
        callbacks=[GoodEnough(net, site)],
    )
    trainer.train()
    dist.barrier()
    if trainer.is_world_process_zero():
        torch.save(net.state_dict(), "/tmp/ferrb_door_wear.pt")


if __name__ == "__main__":
    main()
