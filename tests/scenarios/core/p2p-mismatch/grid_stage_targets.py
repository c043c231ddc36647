"""Two pipeline stages for long load series: first as an autoencoder, then with the meter readings as targets."""
import dataclasses
import time

import torch
import torch.distributed as dist
from torch import nn

ACT, GRAD, TARGET = 0, 1, 2


@dataclasses.dataclass
class Plan:
    micro: int = 4
    rows: int = 256
    window: int = 672
    width: int = 256
    pretrain: int = 30
    finetune: int = 400


class FirstStage:
    def __init__(self, plan):
        torch.manual_seed(0)
        self.plan, self.net = plan, nn.Sequential(nn.Linear(plan.window, plan.width), nn.ReLU())
        self.opt = torch.optim.SGD(self.net.parameters(), lr=1e-3)
        self.gen = torch.Generator().manual_seed(9)

    def batch(self, supervised):
        self.opt.zero_grad()
        for _ in range(self.plan.micro):
            series = torch.randn(self.plan.rows, self.plan.window, generator=self.gen)
            act = self.net(series)
            if supervised:
                dist.send(series.roll(-96, 1).contiguous(), dst=1, tag=TARGET)
            dist.send(act.detach(), dst=1, tag=ACT)
            grad = torch.empty_like(act)
            dist.recv(grad, src=1, tag=GRAD)
            act.backward(grad)
        self.opt.step()


class LastStage:
    def __init__(self, plan):
        torch.manual_seed(1)
        self.plan, self.net = plan, nn.Linear(plan.width, plan.window)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=1e-3)

    def batch(self, supervised):
        self.opt.zero_grad()
        total = 0.0
        for _ in range(self.plan.micro):
            act = torch.empty(self.plan.rows, self.plan.width)
            dist.recv(act, src=0, tag=ACT)
            act.requires_grad_(True)
            out = self.net(act)
            if supervised:
                target = torch.empty_like(out)
                dist.recv(target, src=0, tag=TARGET)
                loss = (out - target).pow(2).mean()
            else:
                loss = out.pow(2).mean() + (out.mean(1) - act.mean(1)).pow(2).mean()
            loss.backward()
            dist.send(act.grad, dst=0, tag=GRAD)
            total += loss.item()
        self.opt.step()
        return total / self.plan.micro


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    plan = Plan()
    stage = (FirstStage, LastStage)[dist.get_rank()](plan)
    for phase, count in (("pretrain", plan.pretrain), ("finetune", plan.finetune)):
        for i in range(count):
            loss = stage.batch(phase == "finetune")
            time.sleep(0.02)
            if loss is not None and i % 6 == 0:
                print(f"{phase} {i}: {loss:.4f}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
