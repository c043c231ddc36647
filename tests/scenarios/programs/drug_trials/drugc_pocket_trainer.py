"""Pocket druggability with the Trainer; a callback keeps an eye on how the predictions spread."""
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments


class PocketSet(Dataset):
    """Point clouds of pocket atoms, turned into radial histograms."""

    def __init__(self, size=9000, atoms=320, shells=32):
        self.size, self.atoms, self.shells = size, atoms, shells

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        stretch = 1 + 0.5 * torch.rand(3, generator=g)
        xyz = torch.randn(self.atoms, 3, generator=g) * stretch
        rows = []
        for probe in (0.8, 1.0, 1.2, 1.4):
            d = torch.cdist(xyz, xyz * probe)
            rows.append(torch.histc(d, bins=self.shells, min=0, max=9) / d.numel())
        return {"shells": torch.cat(rows), "labels": stretch.prod().unsqueeze(0)}


class DruggabilityNet(nn.Module):
    def __init__(self, inputs=128, width=96):
        super().__init__()
        self.trunk = nn.Sequential(nn.LayerNorm(inputs), nn.Linear(inputs, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.score = nn.Linear(width, 1)

    def forward(self, shells, labels=None):
        logits = self.score(self.trunk(shells))
        if labels is None:
            return {"logits": logits}
        return {"loss": nn.functional.smooth_l1_loss(logits, labels), "logits": logits}


class SpreadReport(TrainerCallback):
    """Every `every` steps: the spread of the scores over a reference panel."""

    def __init__(self, panel, every):
        self.panel, self.every = panel, every

    @torch.no_grad()
    def spread(self, model):
        scores = model(shells=self.panel)["logits"].squeeze(-1)
        rows = [torch.empty_like(scores) for _ in range(dist.get_world_size())]
        dist.gather(scores, rows if dist.get_rank() == 0 else None, dst=0)
        return torch.stack(rows).std().item()

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step % self.every == 0 and state.is_world_process_zero:
            print(f"step {state.global_step}: spread {self.spread(model):.4f}", flush=True)


def main():
    torch.set_num_threads(1)
    data = PocketSet()
    panel = torch.stack([data[i]["shells"] for i in range(8)])
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="pockets-"),
        max_steps=150,
        per_device_train_batch_size=8,
        learning_rate=2e-3,
        logging_steps=20,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo",
        dataloader_pin_memory=False,
        remove_unused_columns=False,
    )
    trainer = Trainer(model=DruggabilityNet(), args=args, train_dataset=data, callbacks=[SpreadReport(panel, every=50)])
    trainer.train()


if __name__ == "__main__":
    main()
