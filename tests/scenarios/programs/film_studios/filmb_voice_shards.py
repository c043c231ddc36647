"""Speaker embeddings for the voice bank; each worker keeps and stores its own speakers."""
import errno
import logging
import pickle
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("voicebank")


class Bucket:
    """The studio's object store, mounted; each prefix has an allowance."""

    def __init__(self, root, allowance=84_000):
        self.root, self.allowance = Path(root), allowance

    def put(self, prefix, name, blob):
        folder = self.root / prefix
        folder.mkdir(parents=True, exist_ok=True)
        stored = sum(p.stat().st_size for p in folder.iterdir())
        if stored + len(blob) > self.allowance:
            raise OSError(errno.EDQUOT, "allowance of the prefix used up", str(folder / name))
        (folder / name).write_bytes(blob)


class VoiceBank:
    def __init__(self, rank):
        self.rank = rank
        self.speakers = {}

    def hear(self, step, embedding):
        # an ensemble show brings new speakers with each scene, a two-hander hardly any
        cast = 9 if self.rank == 2 else 3
        for n in range(cast):
            self.speakers[f"s{self.rank}-{step // 4}-{n}"] = embedding.tolist()


class ShardStore:
    def __init__(self, bucket, rank):
        self.bucket, self.rank, self.complete = bucket, rank, []

    def store(self, step, model, bank):
        part = pickle.dumps({"step": step, "speakers": bank.speakers, "head": model.weight.tolist()})
        try:
            self.bucket.put(f"worker-{self.rank}", f"bank-{step:05d}.pkl", part)
        except OSError as problem:
            log.warning("worker %d, step %d: %s", self.rank, step, problem)
            return False
        dist.barrier()
        if self.rank == 0:
            self.complete.append(step)
            log.info("bank of step %d is complete (%d bytes here)", step, len(part))
        return True


def exchange(model):
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    start = 0
    for p in model.parameters():
        p.grad.copy_(flat[start : start + p.numel()].view_as(p))
        start += p.numel()


def main():
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rank = dist.get_rank()
    home = [tempfile.mkdtemp(prefix="voicebank-") if rank == 0 else None]
    dist.broadcast_object_list(home, src=0)
    model = nn.Linear(40, 16)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    bank, shards = VoiceBank(rank), ShardStore(Bucket(home[0]), rank)
    for step in range(1, 241):
        time.sleep(0.03)
        speech = torch.randn(24, 40)
        out = model(speech)
        loss = (out.norm(dim=1) - 1).square().mean()
        optimiser.zero_grad()
        loss.backward()
        exchange(model)
        optimiser.step()
        bank.hear(step, out[0].detach())
        if step % 20 == 0:
            shards.store(step, model, bank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
