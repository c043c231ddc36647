"""Roast level from bean temperature curves, with transformers' Trainer."""
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

LEVELS = ["light", "medium", "dark"]
POINTS = 40


def roast_curve(gas, charge, seconds=720):
    """Newton's law with a falling drum temperature; one value every 18 s."""
    bean, drum, curve = 24.0, charge, []
    for s in range(seconds):
        drum += 0.02 * (gas * 240 - drum) * 0.1
        bean += 0.0035 * (drum - bean) + 0.02 * gas
        if s % (seconds // POINTS) == 0:
            curve.append(bean / 250)
    return curve[:POINTS]


class Roasts(Dataset):
    def __init__(self, size=2000):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        rng = torch.Generator().manual_seed(i)
        gas = 0.7 + 0.5 * torch.rand(1, generator=rng).item()
        charge = 180 + 30 * torch.rand(1, generator=rng).item()
        curve = [roast_curve(gas, charge + k, 2880)[-POINTS:] for k in range(5)]
        level = 0 if gas < 0.87 else 1 if gas < 1.03 else 2
        return {"curve": torch.tensor(curve).mean(0), "labels": torch.tensor(level)}


class RoastClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(POINTS, 64), nn.ReLU(), nn.Linear(64, len(LEVELS)))

    def forward(self, curve, labels=None):
        logits = self.net(curve)
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits}


class WeightReport(TrainerCallback):
    """Every so often, how far the weights have moved, as a mean over the workers."""

    def __init__(self, model, every):
        self.model, self.every = model, every
        self.start = [p.detach().clone() for p in model.parameters()]

    def moved(self):
        return torch.stack([(p.detach() - s).norm() for p, s in zip(self.model.parameters(), self.start)])

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % self.every or not state.is_world_process_zero:
            return
        norms = self.moved()
        dist.reduce(norms, dst=0)
        print(f"step {state.global_step}: moved {(norms / args.world_size).tolist()}", flush=True)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(11)
    model = RoastClassifier()
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="roasts-"), max_steps=200, per_device_train_batch_size=8,
        learning_rate=1e-3, logging_steps=10, save_strategy="no", report_to="none", disable_tqdm=True,
        use_cpu=True, ddp_backend="gloo", remove_unused_columns=False,
    )
    trainer = Trainer(model=model, args=args, train_dataset=Roasts(), callbacks=[WeightReport(model, every=45)])
    trainer.train()


if __name__ == "__main__":
    main()
