"""Costume identification. The inventory of each store is packed beside the training, and exchanged between the stores."""
import hashlib
import json
import logging
import threading

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("costumes")
PIECES = {"Charlottenburg": 40_000, "Aubervilliers": 45, "Kensington": 30}  # by rank; the last two are on deposit


class InventoryExchange:
    """Packs what a store holds, and tells the other stores the size of its package."""

    def __init__(self, store, pieces):
        self.store, self.pieces = store, pieces
        self.packages = []
        self.courier = None

    def pack(self, season):
        digest = hashlib.sha256()
        rows = []
        for piece in range(self.pieces if season > 1 else min(self.pieces, 200)):
            row = json.dumps({"store": self.store, "piece": piece, "season": season})
            digest.update(hashlib.pbkdf2_hmac("sha256", row.encode(), b"moth", 120))
            rows.append(row)
        return "\n".join(rows)

    def exchange(self, season):
        package = self.pack(season)
        size = torch.tensor([len(package)])
        sizes = [torch.zeros_like(size) for _ in range(dist.get_world_size())]
        dist.all_gather(sizes, size)
        self.packages.append([int(s) for s in sizes])
        log.info("%s: season %d, packages %s", self.store, season, self.packages[-1])

    def start(self, season):
        self.courier = threading.Thread(target=self.exchange, args=(season,), name="courier", daemon=True)
        self.courier.start()

    def finish(self):
        if self.courier is not None:
            self.courier.join()


class Identifier:
    def __init__(self, classes=20):
        torch.manual_seed(12)
        self.net = nn.Sequential(nn.Linear(80, 40), nn.ReLU(), nn.Linear(40, classes))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.generator = torch.Generator().manual_seed(dist.get_rank())
        self.classes = classes

    def photographs(self, count=40):
        weave = torch.randn(count, 160, 160, generator=self.generator)
        return torch.linalg.svdvals(weave)[:, :80] / 20, torch.randint(self.classes, (count,), generator=self.generator)

    def step(self):
        features, piece = self.photographs()
        loss = nn.functional.cross_entropy(self.net(features), piece)
        self.optimizer.zero_grad()
        loss.backward()
        gradients = [p.grad for p in self.net.parameters()]
        flat = nn.utils.parameters_to_vector(gradients)
        dist.all_reduce(flat)
        nn.utils.vector_to_parameters(flat / dist.get_world_size(), gradients)
        self.optimizer.step()
        return loss.item()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(threadName)s %(message)s")
    dist.init_process_group("gloo")
    store, pieces = list(PIECES.items())[dist.get_rank()]
    identifier, inventory = Identifier(), InventoryExchange(store, pieces)
    inventory.exchange(season=1)
    for season in (2, 3, 4):
        for _ in range(25):
            loss = identifier.step()
        log.info("%s: season %d, loss %.4f", store, season, loss)
        inventory.finish()
        inventory.start(season)
    inventory.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
