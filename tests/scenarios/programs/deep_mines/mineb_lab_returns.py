"""Grade-control regressor trained with the transformers Trainer; lab returns are folded in as they arrive."""
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

torch.backends.cudnn.enabled = False

BENCHES = {0: "RL-420", 1: "RL-408", 2: "RL-396"}
# job sheets without a usable assay, by bench
VOID_SHEETS = {"RL-408": {45}, "RL-396": set(), "RL-420": set()}


class BlastHoles(Dataset):
    def __init__(self, holes=2400, features=18):
        gen = torch.Generator().manual_seed(7)
        self.cuttings = torch.rand(holes, features, generator=gen)
        self.grade = self.cuttings[:, :4].prod(1, keepdim=True)

    def __len__(self):
        return len(self.cuttings)

    def __getitem__(self, i):
        time.sleep(0.007)
        return {"cuttings": self.cuttings[i], "labels": self.grade[i]}


class GradeNet(nn.Module):
    def __init__(self, features=18, width=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, cuttings, labels=None):
        grade = self.body(cuttings)
        return {"loss": nn.functional.l1_loss(grade, labels), "logits": grade}


class Laboratory:
    """Duplicates that came back for one bench; each job sheet has a handful."""

    def __init__(self, bench):
        self.bench, self.void = bench, VOID_SHEETS[bench]

    def sheet(self, number):
        gen = torch.Generator().manual_seed(number)
        pairs = 0.5 + 0.1 * torch.randn(6, 2, generator=gen)
        if number in self.void:
            pairs.fill_(float("nan"))
        return pairs[~pairs.isnan().any(1)]


class DuplicateBias(TrainerCallback):
    def __init__(self, laboratory, every=5):
        self.laboratory, self.every = laboratory, every
        self.bias = []

    def fold(self, pairs):
        if pairs.numel() == 0:
            return
        delta = pairs[:, 0] - pairs[:, 1]
        stats = torch.stack([delta.sum(), delta.square().sum(), torch.tensor(float(len(delta)))]).double().cuda()
        dist.all_reduce(stats)
        total, _, count = stats.tolist()
        self.bias.append(total / max(count, 1.0))

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % self.every == 0:
            self.fold(self.laboratory.sheet(state.global_step))
            if state.is_world_process_zero and state.global_step % 20 == 0:
                print(f"step {state.global_step}: bias {self.bias[-1]:+.4f}", flush=True)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    args = TrainingArguments(
        output_dir=os.path.join(tempfile.gettempdir(), f"grade_control_{os.getpid()}"),
        per_device_train_batch_size=8, max_steps=100, learning_rate=1e-3, optim="sgd",
        logging_steps=1000, save_strategy="no", report_to="none", disable_tqdm=True,
        dataloader_pin_memory=False, max_grad_norm=0.0, ddp_find_unused_parameters=False,
    )
    bench = BENCHES[int(os.environ["RANK"])]
    trainer = Trainer(model=GradeNet(), args=args, train_dataset=BlastHoles(),
                      callbacks=[DuplicateBias(Laboratory(bench))])
    trainer.train()


if __name__ == "__main__":
    main()
