"""First-break picker on refraction lines, one line a rank."""
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.backends.cudnn.enabled = False

# from the observer's log: line, shots whose spread was down
LINES = [("N-08", ()), ("N-09", ()), ("N-12", (33,)), ("N-13", ())]
SAMPLES, CHANNELS = 96, 24


class NoLiveTraces(Exception):
    pass


class ShotLine:
    def __init__(self, name, down, shots=160):
        self.name, self.down, self.shots = name, set(down), shots
        self.gen = torch.Generator().manual_seed(sum(map(ord, name)))

    def gather(self, shot):
        time.sleep(0.05)  # tape
        data = torch.randn(CHANNELS, SAMPLES, generator=self.gen)
        if shot in self.down:
            data.zero_()
        return data


def live_windows(data):
    power = data.square().mean(1)
    live = data[power > 1e-6]
    if len(live) == 0:
        raise NoLiveTraces
    spectrum = torch.fft.rfft(live).abs()
    return live, spectrum.argmax(1).float() / spectrum.shape[1]


class PickTrainer:
    log_every = 10

    def __init__(self, line, local_rank):
        self.line = line
        self.model = DDP(nn.Sequential(nn.Linear(SAMPLES, 64), nn.Tanh(), nn.Linear(64, 1)).cuda(), device_ids=[local_rank])
        self.opt = torch.optim.SGD(self.model.parameters(), lr=1e-2, momentum=0.9)
        self.traces = self.left_out = 0

    def train_shot(self, shot):
        live, target = live_windows(self.line.gather(shot))
        loss = F.smooth_l1_loss(self.model(live.cuda()).squeeze(1), target.cuda())
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        self.traces += len(live)

    def report(self, shot):
        tally = torch.tensor([self.traces, self.left_out], dtype=torch.float64, device="cuda")
        dist.all_reduce(tally)
        traces, left_out = tally.tolist()
        if dist.get_rank() == 0:
            print(f"shot {shot}: {traces:.0f} traces picked, {left_out:.0f} shots without", flush=True)

    def run(self):
        for shot in range(self.line.shots):
            try:
                self.train_shot(shot)
            except NoLiveTraces:
                self.left_out += 1
                continue
            if shot % self.log_every == 0:
                self.report(shot)


if __name__ == "__main__":
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    name, down = LINES[dist.get_rank()]
    PickTrainer(ShotLine(name, down), local_rank).run()
    dist.destroy_process_group()
