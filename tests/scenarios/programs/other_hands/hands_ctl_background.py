"""A checkpoint thread with a group of its own: it gathers plans slowly, while the main threads train on."""

import threading
import time

import torch
import torch.distributed as dist
from torch import nn


class BackgroundSaver:
    def __init__(self):
        self.group, self.thread, self.saved = dist.new_group(), None, []

    def _work(self, state, step):
        if dist.get_rank() == 2:
            for _ in range(20):  # this node's disk is slow
                time.sleep(0.5)
        sizes = [None] * dist.get_world_size()
        dist.all_gather_object(sizes, sum(v.numel() for v in state.values()), group=self.group)
        self.saved.append((step, sum(sizes)))

    def save(self, state, step):
        self.wait()
        self.thread = threading.Thread(target=self._work, args=({k: v.clone() for k, v in state.items()}, step))
        self.thread.start()

    def wait(self):
        if self.thread is not None:
            self.thread.join()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model, saver = nn.Linear(24, 24), BackgroundSaver()
    for step in range(1, 121):
        x = torch.randn(16, 24)
        model.zero_grad()
        loss = (model(x) - x).square().mean()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.data -= 0.02 * p.grad
        time.sleep(0.15)
        if step in (20, 110):
            saver.save(model.state_dict(), step)
    saver.wait()
    dist.barrier()
    if dist.get_rank() == 0:
        print(f"saved {saver.saved}, loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
