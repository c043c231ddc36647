"""Lameness grading from side-view gait clips (elephants, giraffes, okapi). One paddock camera per process."""
import logging
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

EPOCHS, CLIPS, FRAMES, JOINTS = 4, 400, 96, 12
log = logging.getLogger("gait")


class PaddockClips(Dataset):
    """Hip-centred joint tracks of one camera; every clip is scaled by its own range of motion."""

    def __init__(self, camera):
        g = torch.Generator().manual_seed(310 + camera)
        self.tracks = torch.randn(CLIPS, FRAMES, JOINTS, generator=g).cumsum(1)
        self.grades = torch.randint(0, 5, (CLIPS,), generator=g)
        for clip in EMPTY.get(camera, ()):
            self.tracks[clip] = 0.0

    def __len__(self):
        return CLIPS

    def __getitem__(self, i):
        x = self.tracks[i]
        for _ in range(6):  # median-like smoothing of the detector's jitter
            x = torch.stack([x.roll(s, 0) for s in (-1, 0, 1)]).median(0).values
        return (x - x.mean(0)) / x.std(0), self.grades[i]


EMPTY = {1: (331,)}  # the boma camera at lunch: nobody in the picture


class StrideNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.GRU(JOINTS, 48, batch_first=True)
        self.head = nn.Linear(48, 5)

    def forward(self, x):
        return self.head(self.encoder(x)[0].mean(1))


def train_epoch(model, optimizer, loader, epoch):
    total, used = 0.0, 0
    for clips, grades in loader:
        loss = nn.functional.cross_entropy(model(clips), grades)
        if not torch.isfinite(loss):
            log.warning("epoch %d: loss is %s", epoch, loss.item())
            continue
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total, used = total + loss.item(), used + 1
    return {"camera": dist.get_rank(), "loss": total / max(used, 1), "batches": used}


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    camera = int(os.environ["RANK"])
    torch.manual_seed(0)
    model = DDP(StrideNet())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loader = DataLoader(PaddockClips(camera), batch_size=4, shuffle=False)
    for epoch in range(EPOCHS):
        report = train_epoch(model, optimizer, loader, epoch)
        reports = [None] * dist.get_world_size()
        dist.all_gather_object(reports, report)
        if camera == 0:
            log.info("epoch %d %s", epoch, " ".join(f"{r['camera']}:{r['loss']:.3f}" for r in reports))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
