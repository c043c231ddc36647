"""Dates charters from the index cards of two reading rooms."""
import json
import os
import queue
import random
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn import Linear, Sequential, Sigmoid
from torch.nn.parallel import DistributedDataParallel

ROOMS = ["Marburg", "Fulda"]


def type_cards(folder, room, count=120):
    """The cards as the typists left them: signature, issuer and year."""
    rng = random.Random(room)
    for number in range(count):
        year = str(rng.randint(1180, 1520))
        if room == "Fulda" and number == 83:
            year = "s. XV in."
        card = {"signature": f"{room} Urk. {number}", "issuer": rng.choice(["abbas", "comes", "villicus"]), "year": year}
        (folder / f"{number:04d}.json").write_text(json.dumps(card))


class CardReader(threading.Thread):
    def __init__(self, folder, batch=2, ahead=4):
        super().__init__(name="cards", daemon=True)
        self.folder, self.batch = Path(folder), batch
        self.cards = queue.Queue(ahead)

    def parse(self, path):
        card = json.loads(path.read_text())
        time.sleep(0.03)
        issuer = [float(card["issuer"] == name) for name in ("abbas", "comes", "villicus")]
        return issuer, (int(card["year"]) - 1350) / 200

    def run(self):
        paths = sorted(self.folder.glob("*.json"))
        for start in range(0, len(paths), self.batch):
            issuers, years = zip(*(self.parse(path) for path in paths[start : start + self.batch]))
            self.cards.put((torch.tensor(issuers), torch.tensor(years).unsqueeze(1)))
        self.cards.put(None)

    def __iter__(self):
        self.start()
        while True:
            item = self.cards.get()
            if item is None:
                return
            yield item


def date_charters(model, optimizer, reader):
    for step, (issuers, years) in enumerate(reader):
        loss = (model(issuers.cuda()) - years.cuda()).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        error = loss.item()
        if step % 10 == 0:
            print(f"{ROOMS[dist.get_rank()]}: step {step}, off by {error * 200:.0f} years", flush=True)


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    model = DistributedDataParallel(Sequential(Linear(3, 16), Sigmoid(), Linear(16, 1)).cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with tempfile.TemporaryDirectory() as folder:
        type_cards(Path(folder), ROOMS[dist.get_rank()])
        date_charters(model, optimizer, CardReader(folder))
        dist.barrier(device_ids=[local])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
