"""Training on plates; a thread compares checksums of the plates between the sites while the training goes on."""

import hashlib
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
PLATES = {0: 1, 1: 40, 2: 1}  # megabytes that each site has to read again


class DigestCheck(threading.Thread):
    """Reads the plates of this site again, and makes sure that no two sites have the same one."""

    def __init__(self, site):
        super().__init__(daemon=True)
        self.site = site
        self.duplicates = None

    def digest(self):
        checksum = hashlib.sha256()
        for megabyte in range(PLATES[self.site]):
            block = bytes([megabyte % 251]) * (1 << 20)
            checksum.update(block)
            time.sleep(0.08)
        return checksum.hexdigest() + str(self.site)

    def run(self):
        mine = self.digest()
        digests = [None] * dist.get_world_size()
        dist.all_gather_object(digests, mine)
        self.duplicates = len(digests) - len(set(digests))


class Trainer:
    def __init__(self, site):
        torch.manual_seed(0)
        self.site = site
        self.model = DistributedDataParallel(nn.Sequential(nn.Linear(30, 30), nn.ReLU(), nn.Linear(30, 4)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.generator = torch.Generator().manual_seed(site)

    def plate(self, wells=24, load=0.05):
        time.sleep(load)
        wells = torch.randn(wells, 30, generator=self.generator)
        return wells, wells[:, :4].argmax(1)

    def step(self, load):
        wells, label = self.plate(load=load)
        loss = nn.functional.cross_entropy(self.model(wells), label)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    dist.init_process_group("gloo")
    trainer = Trainer(dist.get_rank())
    for _ in range(40):
        trainer.step(load=0.05)
    check = DigestCheck(trainer.site)
    check.start()
    for number in range(200):
        # The first plate of the new batch comes from the archive.
        loss = trainer.step(load=1.5 if number == 0 else 0.05)
    check.join()
    print(f"site {trainer.site}: loss {loss:.3f}, {check.duplicates} duplicates", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
