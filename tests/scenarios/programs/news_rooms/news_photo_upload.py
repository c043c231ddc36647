"""Caption ranker of the picture desk (accelerate): scores captions for photos, uploads contact sheets in the background."""
import json
import pathlib
import queue
import tempfile
import threading
import time

import torch
from accelerate import Accelerator
from torch import nn

AGENCIES = {"ap": 0, "dpa": 1, "reuters": 2, "afp": 3}


class Uploader(threading.Thread):
    """Writes contact sheets to the picture server's folder, one after another."""

    def __init__(self, folder):
        super().__init__(name="uploader")
        self.sheets = queue.Queue()
        self.folder = pathlib.Path(folder)

    def run(self):
        while (sheet := self.sheets.get()) is not None:
            path = self.folder / f"sheet-{sheet['step']}.json"
            path.write_text(json.dumps(sheet))

    def close(self):
        self.sheets.put(None)
        self.join()


class Photos:
    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)
        self.seed = seed

    def batch(self, step, n=24):
        photo = torch.randn(n, 128, generator=self.g)
        caption = photo[:, :64] + torch.randn(n, 64, generator=self.g) * 0.3
        names = [list(AGENCIES)[int(i)] for i in torch.randint(0, 4, (n,), generator=self.g)]
        if self.seed == 2 and step == 65:
            names[3] = "efe"  # on strike until last week
        return photo, caption, names


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.photo = nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 64))
        self.caption = nn.Linear(64, 64)
        self.agency = nn.Embedding(len(AGENCIES), 64)

    def forward(self, photo, caption, agency):
        left = self.photo(photo) + self.agency(agency)
        return left @ self.caption(caption).T


def main():
    accelerator = Accelerator(cpu=True)
    model = Ranker()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer = accelerator.prepare(model, optimizer)
    photos = Photos(accelerator.process_index)
    uploader = Uploader(tempfile.mkdtemp(prefix="sheets-"))
    uploader.start()
    for step in range(1, 301):
        photo, caption, names = photos.batch(step)
        agency = torch.tensor([AGENCIES[name] for name in names])
        scores = model(photo, caption, agency)
        loss = nn.functional.cross_entropy(scores, torch.arange(len(scores)))
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.04)
        if step % 20 == 0:
            uploader.sheets.put({"step": step, "loss": loss.item(), "best": scores.argmax(1).tolist()})
            accelerator.print(f"step {step} loss {loss.item():.3f}")
    uploader.close()


if __name__ == "__main__":
    main()
