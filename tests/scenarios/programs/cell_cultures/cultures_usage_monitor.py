"""Train on calcium traces; a monitor samples the use of memory beside the training and is stopped at its end."""

import resource
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)


class UsageMonitor(threading.Thread):
    def __init__(self, interval):
        super().__init__(name="usage")
        self.interval = interval
        self.running = True
        self.samples = []

    def run(self):
        while self.running:
            self.samples.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
            time.sleep(self.interval)

    def stop(self):
        self.running = False
        self.join()


class Recording:
    """Traces of one animal. Each session has a table of its regions; the newest has a region that is not in the atlas."""

    ATLAS = {"V1": 0, "LM": 1, "AL": 2, "PM": 3}

    def __init__(self, animal):
        self.animal = animal
        self.generator = torch.Generator().manual_seed(animal)

    def regions(self, session):
        names = ["V1", "LM", "AL", "PM"]
        if self.animal == 1 and session == 3:
            names[2] = "RL"
        return names

    def session(self, number, batches=12):
        for _ in range(batches):
            time.sleep(0.05)
            traces = torch.randn(4, 30, generator=self.generator)
            labels = torch.tensor([self.ATLAS[name] for name in self.regions(number)])
            yield traces + labels[:, None], labels


def train(animal, sessions):
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(30, 20), nn.ReLU(), nn.Linear(20, 4)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    recording = Recording(animal)
    for number in range(sessions):
        for traces, labels in recording.session(number):
            loss = nn.functional.cross_entropy(model(traces), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if animal == 0:
            print(f"session {number}: {loss.item():.4f}", flush=True)
    return model


def main():
    dist.init_process_group("gloo")
    monitor = UsageMonitor(interval=0.2)
    monitor.start()
    train(dist.get_rank(), sessions=50)
    dist.barrier()
    monitor.stop()
    print(f"peak {max(monitor.samples)} kB")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
