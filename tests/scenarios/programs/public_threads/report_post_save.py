"""Actor training with asynchronous checkpoints, and a hook that is run after a checkpoint has been written."""

import json
import os
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)


class AsyncSaver:
    """Writes the shard of this rank in the background; `finish` completes the checkpoint."""

    def __init__(self, root):
        self.root = root
        self.pending = None

    def save(self, step, shard):
        self.finish()
        folder = self.root / f"step-{step}"
        folder.mkdir(parents=True, exist_ok=True)
        copy = {name: tensor.detach().clone() for name, tensor in shard.items()}
        thread = threading.Thread(target=torch.save, args=(copy, folder / f"shard-{dist.get_rank()}.pt"))
        thread.start()
        self.pending = (thread, folder, step)

    def finish(self):
        if self.pending is None:
            return
        thread, folder, step = self.pending
        self.pending = None
        thread.join()
        dist.barrier()
        if dist.get_rank() == 0:
            (folder / "index.json").write_text(json.dumps({"step": step, "shards": dist.get_world_size()}))


class Actor:
    def __init__(self, config):
        torch.manual_seed(4)
        self.config = config
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.net = nn.Sequential(nn.Linear(24, 64), nn.Tanh(), nn.Linear(64, 6))
        self.model = DDP(self.net)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.saver = AsyncSaver(Path(config["root"]))

    def train_step(self, observations, actions, advantages):
        log_probs = torch.log_softmax(self.model(observations), -1)
        chosen = log_probs.gather(1, actions[:, None]).squeeze(1)
        loss = -(chosen * advantages).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def shard(self):
        names = sorted(self.net.state_dict())
        return {name: self.net.state_dict()[name] for name in names[self.rank :: self.world]}

    def save_model(self, step):
        self.saver.save(step, self.shard())
        hook = self.config.get("post_save_hook")
        if hook is not None and step >= self.config["publish_from"] and self.rank == 0:
            self.saver.finish()
            hook(self.saver.root / f"step-{step}")


def publish(folder):
    """Tells the evaluation service which checkpoint to pick up."""
    (folder.parent / "latest.txt").write_text(folder.name)
    print("published", folder.name, flush=True)


def rollouts(rank):
    generator = torch.Generator().manual_seed(50 + rank)
    while True:
        observations = torch.randn(32, 24, generator=generator)
        actions = torch.randint(0, 6, (32,), generator=generator)
        yield observations, actions, torch.randn(32, generator=generator)


def main():
    dist.init_process_group("gloo")
    root = os.path.join(tempfile.gettempdir(), f"actor-{os.environ['MASTER_PORT']}")
    actor = Actor({"root": root, "post_save_hook": publish, "publish_from": 40})
    for step, batch in enumerate(rollouts(actor.rank), 1):
        loss = actor.train_step(*batch)
        time.sleep(0.03)
        if step % 20 == 0:
            actor.save_model(step)
            if actor.rank == 0:
                print(f"step {step} loss {loss:.4f}", flush=True)
        if step == 2000:
            break
    actor.saver.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
