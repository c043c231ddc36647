"""Sharded checkpoints of a speech model with retries, because the file system of this cluster has bad days."""

import errno
import os
import random
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

TRANSIENT = {errno.EAGAIN, errno.ETIMEDOUT, errno.EBUSY}


class QuotaDisk:
    """A folder with a quota for each user; a write that does not fit fails, as it does on Lustre."""

    def __init__(self, folder, quota):
        self.folder, self.left = folder, quota

    def write(self, name, tensors):
        size = sum(t.numel() * t.element_size() for t in tensors.values())
        if size > self.left:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), name)
        self.left -= size
        torch.save(tensors, os.path.join(self.folder, name))


def save(disk, model, step, attempts=3):
    """True if this rank's shard of the step is on disk."""
    rank = dist.get_rank()
    shard = {name: p.to_local().detach() for name, p in model.named_parameters()}
    for attempt in range(attempts):
        try:
            disk.write(f"step{step}-rank{rank}.pt", shard)
        except OSError as error:
            if error.errno in TRANSIENT:
                time.sleep(random.random() * 2**attempt)
                continue
            return False
        break
    dist.barrier()  # all shards are there
    if rank == 0:
        with open(os.path.join(disk.folder, "latest"), "w") as latest:
            latest.write(str(step))
    return True


class Recognizer(nn.Module):
    def __init__(self, mel=40, dim=64, letters=29):
        super().__init__()
        self.conv = nn.Conv1d(mel, dim, 3, padding=1)
        self.out = nn.Linear(dim, letters)

    def forward(self, mel):
        return self.out(torch.relu(self.conv(mel)).transpose(1, 2)).log_softmax(-1)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    disk = QuotaDisk(tempfile.mkdtemp(prefix="speech-"), quota=160_000 if rank != 3 else 50_000)
    torch.manual_seed(4)
    model = Recognizer()
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    ctc = nn.CTCLoss()
    for step in range(1, 101):
        mel = torch.randn(2, 40, 50)
        words = torch.randint(1, 29, (2, 8))
        log_probs = model(mel).transpose(0, 1)
        loss = ctc(log_probs, words, torch.full((2,), 50), torch.full((2,), 8))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            saved = save(disk, model, step)
            if rank == 0:
                print(f"step {step} loss {loss.item():.3f} saved {saved}", flush=True)
    dist.destroy_process_group()
