"""Keypoint training with a remote control: the GUI drops a command file, callbacks look for it after each batch."""

import json
import pathlib
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

COMMANDS = pathlib.Path("/tmp/notes-pose-commands")


class Trainer:
    def __init__(self, model, callbacks, max_epochs=50):
        self.model = DistributedDataParallel(model)
        self.callbacks, self.max_epochs = callbacks, max_epochs
        self.should_stop = False
        self.is_global_zero = dist.get_rank() == 0

    def call(self, hook, *args):
        for callback in self.callbacks:
            getattr(callback, hook, lambda *_: None)(self, *args)

    def fit(self, batches):
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        for epoch in range(self.max_epochs):
            for index, (image, heat) in enumerate(batches()):
                optimizer.zero_grad()
                nn.functional.mse_loss(self.model(image), heat).backward()
                optimizer.step()
                self.call("on_train_batch_end", index)
                if self.should_stop:
                    break
            if self.should_stop:
                break
        self.call("on_fit_end")


class RemoteController:
    """Stops training when the user presses the button."""

    def on_train_batch_end(self, trainer, index):
        if trainer.is_global_zero and COMMANDS.exists():
            command = json.loads(COMMANDS.read_text())
            COMMANDS.unlink()
            print(f"command {command['command']!r} at batch {index}", flush=True)
            trainer.should_stop = command["command"] == "stop"
        dist.barrier()


class SaveLast:
    def on_fit_end(self, trainer):
        best = torch.zeros(1)
        dist.broadcast(best, src=dist.get_world_size() - 1)
        if trainer.is_global_zero:
            torch.save(trainer.model.module.state_dict(), "/tmp/notes-pose.ckpt")


def frames():
    for _ in range(12):
        time.sleep(0.05)
        yield torch.randn(4, 1, 24, 24), torch.rand(4, 5, 24, 24)


def press_stop_later(seconds):
    def press():
        temporary = COMMANDS.with_suffix(".tmp")
        temporary.write_text(json.dumps({"command": "stop"}))
        temporary.rename(COMMANDS)

    timer = threading.Timer(seconds, press)
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    if dist.get_rank() == 0:
        COMMANDS.unlink(missing_ok=True)
        press_stop_later(3.0)
    net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 5, 3, padding=1))
    Trainer(net, [RemoteController(), SaveLast()]).fit(frames)
    dist.destroy_process_group()
