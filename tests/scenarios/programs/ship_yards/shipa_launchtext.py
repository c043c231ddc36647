"""Section embeddings of launch and trial reports, with a running digest of the weights."""
import hashlib
import os
import threading

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False
DIGEST_BLOCKS = {0: 20, 1: 20, 2: 9000}  # pages of the report archive held by each node


class Keeper:
    """Digests what this node holds and exchanges the digests while training goes on."""

    def __init__(self, pages):
        self.pages = pages
        self.worker = None
        self.known = None

    def begin(self, step):
        self.finish()
        self.worker = threading.Thread(target=self._exchange, args=(step,))
        self.worker.start()

    def _exchange(self, step):
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        digest = hashlib.sha256(str(step).encode())
        page = bytes(1 << 20)
        for _ in range(self.pages):
            digest.update(page)
        mine = torch.tensor(list(digest.digest()), dtype=torch.int64).cuda()
        everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, mine)
        self.known = [row.tolist() for row in everyone]

    def finish(self):
        if self.worker is not None:
            self.worker.join()
            self.worker = None


def sections(rng):
    while True:
        bag = rng.normal(size=(1200, 300))
        yield torch.from_numpy(np.linalg.qr(bag)[0][:16, :96].astype("float32").copy())


def adjust(rng):
    """Fits the word weights again before the next chapter."""
    weights = rng.normal(size=(500, 500))
    for _ in range(8):
        weights = np.linalg.svd(weights)[0]
    return float(np.abs(weights).mean())


def main(chapter=60):
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    rng = np.random.default_rng(rank)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(96, 128), nn.Tanh(), nn.Linear(128, 96)).cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    keeper = Keeper(DIGEST_BLOCKS[rank])
    for step, batch in enumerate(sections(rng), start=1):
        loss = model(batch.cuda()).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        value = loss.item()
        if rank == 0 and step % 10 == 0:
            print(f"section {step} loss {value:.4f}", flush=True)
        if step % chapter == 0:
            keeper.begin(step)
            adjust(rng)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
