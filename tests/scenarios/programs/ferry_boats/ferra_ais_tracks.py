"""Next position of vessels from AIS messages. A recorder thread writes what the process has seen."""
import io
import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CLASSES = {"ferry": 0, "barge": 1, "tug": 2, "yacht": 3}


class Recorder(threading.Thread):
    def __init__(self):
        super().__init__(name="recorder")
        self.messages = queue.Queue()
        self.sink = io.StringIO()

    def run(self):
        while True:
            line = self.messages.get()
            if line is None:
                break
            self.sink.write(line + "\n")

    def close(self):
        self.messages.put(None)
        self.join()


class Receiver:
    def __init__(self, mast):
        self.mast = mast
        self.gen = torch.Generator().manual_seed(100 + mast)

    def messages(self, step):
        names = list(CLASSES)
        kinds = [names[int(i)] for i in torch.randint(0, 4, (32,), generator=self.gen)]
        if self.mast == 1 and step == 52:
            kinds[9] = "pilot"
        past = torch.randn(32, 8, generator=self.gen)
        return kinds, past, past[:, -2:] * 2 - past[:, -4:-2]


def encode(kinds, past):
    onehot = torch.zeros(len(kinds), len(CLASSES))
    for row, kind in enumerate(kinds):
        onehot[row, CLASSES[kind]] = 1.0
    return torch.cat([past, onehot], 1)


def main():
    dist.init_process_group("gloo")
    mast = dist.get_rank()
    recorder = Recorder()
    recorder.start()
    receiver = Receiver(mast)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.Linear(32, 2)))
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(300):
        kinds, past, following = receiver.messages(step)
        recorder.messages.put(f"{step} {len(kinds)} {kinds.count('ferry')}")
        loss = nn.functional.mse_loss(model(encode(kinds, past)), following)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.06)
        if mast == 0 and step % 25 == 0:
            print(step, round(loss.item(), 4), flush=True)
    recorder.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
