"""Letterform embedding for a type foundry. At the end the weights are written part by part to the tape robot's inbox."""
import io
import logging
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False
logger = logging.getLogger("foundry")


class Letterforms(nn.Module):
    def __init__(self, parts=12):
        super().__init__()
        self.strokes = nn.ModuleList(nn.Linear(40, 40) for _ in range(parts))

    def forward(self, outline):
        for stroke in self.strokes:
            outline = torch.tanh(stroke(outline)) + outline
        return outline


class TapeInbox:
    """The robot takes about half a megabyte a second."""

    def __init__(self, block=65536, pause=0.12):
        self.folder = Path(tempfile.mkdtemp(prefix="inbox-"))
        self.block, self.pause = block, pause

    def deliver(self, name, payload):
        with open(self.folder / name, "wb") as file:
            for start in range(0, len(payload), self.block):
                file.write(payload[start : start + self.block])
                file.flush()
                os.fsync(file.fileno())
                time.sleep(self.pause)
        return self.folder / name


def train(model, outlines):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number in range(outlines):
        time.sleep(0.03)
        outline = torch.sin(torch.arange(40.0) * (1 + number % 26)).unsqueeze(0).cuda()
        loss = (model(outline) - outline).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.item()
        if number % 20 == 0:
            logger.info("outline %d loss %.4f", number, value)


def archive(module, rank):
    inbox = TapeInbox() if rank == 0 else None
    for index, stroke in enumerate(module.strokes):
        weight = stroke.weight.detach().clone()
        dist.all_reduce(weight)
        if inbox is not None:
            buffer = io.BytesIO()
            torch.save(weight.cpu(), buffer)
            payload = buffer.getvalue().ljust(9 * inbox.block, b"\0")
            path = inbox.deliver(f"stroke{index:02d}.bin", payload)
            logger.info("delivered %s (%d bytes)", path.name, len(payload))
        dist.barrier()


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    logging.basicConfig(level=logging.INFO if dist.get_rank() == 0 else logging.ERROR)
    model = DistributedDataParallel(Letterforms().cuda(), device_ids=[torch.cuda.current_device()])
    train(model, 80)
    archive(model.module, dist.get_rank())
    train(model, 40)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
