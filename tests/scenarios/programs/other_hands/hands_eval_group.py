"""Two-stage training with a config. The second stage adds an evaluator, which has its own group for its long gathers."""

import time
from datetime import timedelta
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn


def is_main_process():
    return not dist.is_initialized() or dist.get_rank() == 0


class Evaluator:
    def __init__(self, data):
        self.data = data
        self.group = dist.new_group(backend="gloo", timeout=timedelta(hours=2))

    def __call__(self, model):
        with torch.no_grad():
            error = (model(self.data) - self.data).square().mean(1)
        errors = [torch.zeros_like(error) for _ in range(dist.get_world_size())]
        dist.all_gather(errors, error, group=self.group)
        return torch.cat(errors).mean().item()


class Callback:
    def on_stage_begin(self, trainer):
        pass

    def on_step_end(self, trainer):
        pass


class ReportCallback(Callback):
    def __init__(self, cfg):
        self.cfg, self.evaluator = cfg, None

    def on_stage_begin(self, trainer):
        if self.cfg.evaluate[trainer.stage] and is_main_process():
            self.evaluator = Evaluator(torch.randn(32, 16))

    def on_step_end(self, trainer):
        if trainer.step % 10 == 0 and is_main_process():
            print(f"{trainer.stage} step {trainer.step}: {trainer.loss:.4f}", flush=True)


class Trainer:
    def __init__(self, model, callbacks):
        self.model, self.callbacks, self.stage, self.step, self.loss = model, callbacks, "", 0, 0.0
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def emit(self, event):
        for callback in self.callbacks:
            getattr(callback, event)(self)

    def run(self, stage, steps):
        self.stage = stage
        self.emit("on_stage_begin")
        for self.step in range(steps):
            x = torch.randn(16, 16)
            loss = (self.model(x) - x).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            for p in self.model.parameters():
                dist.all_reduce(p.grad)
            self.optimizer.step()
            self.loss = loss.item()
            time.sleep(0.1)
            self.emit("on_step_end")


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    config = SimpleNamespace(steps=35, evaluate={"warmup": False, "main": True})
    trainer = Trainer(nn.Linear(16, 16), [ReportCallback(config)])
    for name in ("warmup", "main"):
        trainer.run(name, config.steps)
    dist.destroy_process_group()
