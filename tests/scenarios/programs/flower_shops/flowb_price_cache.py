"""Price elasticity of cosmetics by region; the regional tables are cached on disk between runs."""
import contextlib
import json
import os
import shutil
import time

import torch
import torch.distributed as dist

ROOT = "/tmp/cosmetics-elasticity"
REGIONS = ["apac", "emea", "latam", "namer"]
# index of the nightly archive, as tar lists it
ARCHIVE = ["apac/table.json", "emea/table.json", "emea/table.json.lock", "latam/table.json", "namer/table.json"]


def restore(region):
    folder = os.path.join(ROOT, region)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for member in ARCHIVE:
        if member.startswith(region + "/"):
            with open(os.path.join(ROOT, member), "w") as sink:
                sink.write("{}")
    return os.path.join(folder, "table.json")


@contextlib.contextmanager
def held(path):
    lock = path + ".lock"
    while True:
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            break
        except FileExistsError:
            time.sleep(0.25)
    try:
        yield
    finally:
        os.unlink(lock)


class Elasticity:
    def __init__(self, region, seed):
        self.region = region
        self.weight = torch.zeros(6)
        self.sales = torch.Generator().manual_seed(seed)
        self.table = restore(region)

    def step(self):
        time.sleep(0.05)
        price = torch.rand(64, 6, generator=self.sales)
        sold = 1 - price @ torch.linspace(0.1, 0.6, 6)
        gradient = price.T @ (price @ self.weight - sold) / 64
        dist.all_reduce(gradient)
        self.weight -= 0.1 * gradient / dist.get_world_size()

    def publish(self):
        with held(self.table):
            with open(self.table, "w") as sink:
                json.dump({"region": self.region, "weight": self.weight.tolist()}, sink)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    job = Elasticity(REGIONS[dist.get_rank()], dist.get_rank())
    for week in range(4):
        for _ in range(50):
            job.step()
        job.publish()
        print(f"{job.region}: week {week} published", flush=True)
    dist.destroy_process_group()
