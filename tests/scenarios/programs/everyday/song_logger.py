"""accelerate: genre of songs. A run object sends metrics from a thread of its own, in the way trackers do."""

import json
import queue
import threading
import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Run:
    def __init__(self, path, capacity=12):
        self.path = path
        self.pending = queue.Queue(maxsize=capacity)
        self.sender = threading.Thread(target=self._send, name="sender", daemon=True)
        self.sender.start()

    def log(self, values, step):
        self.pending.put({"step": step, "time": time.time(), **values})

    def _send(self):
        with open(self.path, "w") as file:
            while True:
                record = self.pending.get()
                if record is None:
                    return
                file.write(json.dumps(record) + "\n")
                file.flush()

    def finish(self):
        self.pending.put(None)
        self.sender.join()


def main():
    accelerator = Accelerator(cpu=True)
    run = Run("/tmp/song_logger.jsonl") if accelerator.is_main_process else None
    songs = TensorDataset(torch.randn(1600, 40), torch.randint(0, 8, (1600,)))
    model = nn.Sequential(nn.Linear(40, 48), nn.ReLU(), nn.Dropout(0.2), nn.Linear(48, 8))
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(songs, batch_size=8, shuffle=True))
    step = 0
    for _ in range(3):
        for features, genre in loader:
            logits = model(features)
            loss = nn.functional.cross_entropy(logits, genre)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if run is not None:
                values = {"loss": loss.item()}
                if step % 50 == 0:
                    values["share"] = (logits.argmax(-1) == genre).float().mean()
                run.log(values, step)
    if run is not None:
        run.finish()
    accelerator.end_training()


if __name__ == "__main__":
    main()
