"""Groundwater level nowcasts; every process keeps a small index of its wells on the shared disk."""
import contextlib
import fcntl
import json
import pathlib
import shutil
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

AQUIFERS = ["gravel", "chalk", "sandstone", "karst"]
REVISIONS = {"gravel": 0.0, "chalk": 0.02, "sandstone": 0.30, "karst": 0.01}  # share of readings corrected later


@contextlib.contextmanager
def exclusive(path):
    """Only one writer per index, also when a nightly job comes by."""
    with open(f"{path}.lock", "a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)


class WellIndex:
    def __init__(self, folder, aquifer, tolerance=900):
        self.path = pathlib.Path(folder) / f"{aquifer}.json"
        self.tolerance = tolerance
        self.corrections = 0
        self.write({"aquifer": aquifer, "generation": 0, "rows": []})

    def write(self, content):
        with exclusive(self.path):
            scratch = self.path.with_suffix(".new")
            scratch.write_text(json.dumps(content))
            scratch.replace(self.path)

    def read(self):
        return json.loads(self.path.read_text())

    def note(self, rows, corrected):
        """Adds today's means; too many corrections make a new generation of the index."""
        self.corrections += corrected
        with exclusive(self.path):
            content = self.read()
            content["rows"] = (content["rows"] + rows)[-200:]
            if self.corrections > self.tolerance:
                self.renew(content)
            else:
                self.path.write_text(json.dumps(content))

    def renew(self, content):
        content["generation"] += 1
        content["rows"] = sorted(content["rows"])
        self.corrections = 0
        self.write(content)


class Nowcast:
    def __init__(self, aquifer, folder, seed):
        self.aquifer = aquifer
        self.index = WellIndex(folder, aquifer)
        self.gen = torch.Generator().manual_seed(seed)
        self.model = DDP(nn.Sequential(nn.Linear(30, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def day(self):
        heads = torch.randn(128, 30, generator=self.gen).cumsum(1) * 0.1
        for _ in range(200):  # barometric correction
            heads = heads - 1e-4 * (heads - heads.mean(1, keepdim=True))
        corrected = int((torch.rand(12, generator=self.gen) < REVISIONS[self.aquifer]).sum())
        self.optimizer.zero_grad()
        loss = (self.model(heads) - heads[:, -1:]).square().mean()
        loss.backward()
        self.optimizer.step()
        self.index.note([round(h, 4) for h in heads[:4].mean(1).tolist()], corrected)
        return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp(prefix=f"wells-{rank}-")
    nowcast = Nowcast(AQUIFERS[rank % 4], folder, rank)
    for day in range(730):
        loss = nowcast.day()
        if day % 30 == 0:
            print(f"{nowcast.aquifer} day {day} loss {loss:.4f}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
