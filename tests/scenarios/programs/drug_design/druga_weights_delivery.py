"""Trains a permeability model with transformers' Trainer and delivers the weights to the sponsor's store in parts."""

import hashlib
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments


class Permeability(Dataset):
    def __init__(self, count=4800):
        source = torch.Generator().manual_seed(12)
        self.x = torch.randn(count, 40, generator=source)
        self.y = self.x[:, :3].prod(1)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return {"descriptors": self.x[index], "labels": self.y[index]}


class Caco(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(40, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, descriptors, labels=None):
        predicted = self.net(descriptors).squeeze(-1)
        return {"loss": nn.functional.mse_loss(predicted, labels), "logits": predicted}


class Store:
    """A mounted bucket; the sponsor allows five requests in a second."""

    def __init__(self, folder, per_second=5.0):
        self.folder, self.pause = folder, 1.0 / per_second

    def put(self, name, data):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        time.sleep(self.pause)
        return hashlib.sha256(data).hexdigest()


class Delivery(TrainerCallback):
    def __init__(self, store, every=60, parts=65):
        self.store, self.every, self.parts = store, every, parts

    def deliver(self, model, step):
        flat = torch.cat([p.detach().flatten() for p in model.parameters()])
        digests = []
        for number, part in enumerate(flat.chunk(self.parts)):
            digests.append(self.store.put(f"{step}-{number:03d}.bin", part.numpy().tobytes() * 200))
            if number % 20 == 0:
                print(f"delivered part {number}", flush=True)
        self.store.put(f"{step}-index.txt", "\n".join(digests).encode())

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step % self.every == 0:
            if state.is_world_process_zero:
                self.deliver(model, state.global_step)
            dist.barrier()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="caco-"), use_cpu=True, max_steps=110, per_device_train_batch_size=8,
        save_strategy="no", logging_steps=20, report_to="none", disable_tqdm=True, remove_unused_columns=False,
    )
    store = Store(tempfile.mkdtemp(prefix="sponsor-"))
    trainer = Trainer(model=Caco(), args=arguments, train_dataset=Permeability(), callbacks=[Delivery(store)])
    trainer.train()
    dist.barrier()
    print("process", trainer.args.process_index, "done", flush=True)


if __name__ == "__main__":
    main()
