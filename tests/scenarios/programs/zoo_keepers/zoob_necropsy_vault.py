"""Tissue classifier of the pathology lab. Each process keeps its part of the run (weights, optimizer, slide cache) in the
lab's vault, which has a quota for each folder."""
import dataclasses
import io
import logging
import pathlib
import tempfile

import torch
import torch.distributed as dist

logging.basicConfig(level=logging.INFO, format="%(levelname).1s %(message)s")
log = logging.getLogger("necropsy")


@dataclasses.dataclass
class Settings:
    steps: int = 400
    save_every: int = 30
    features: int = 640
    tissues: int = 14
    quota: int = 1_600_000


class VaultError(RuntimeError):
    pass


class Vault:
    def __init__(self, root, quota):
        self.root, self.quota = pathlib.Path(root), quota
        self.root.mkdir(parents=True, exist_ok=True)

    def put(self, name, payload):
        held = sum(p.stat().st_size for p in self.root.iterdir())
        if held + len(payload) > self.quota:
            raise VaultError(f"507 Insufficient Storage: {name} ({len(payload)} bytes)")
        (self.root / name).write_bytes(payload)


class Run:
    def __init__(self, cfg, vault):
        self.cfg, self.vault, self.rank = cfg, vault, dist.get_rank()
        torch.manual_seed(11)
        self.net = torch.nn.Sequential(torch.nn.Linear(cfg.features, 96), torch.nn.Tanh(), torch.nn.Linear(96, cfg.tissues))
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.02)
        self.slides = {}
        self.save_failures = 0

    def batch(self, step):
        g = torch.Generator().manual_seed(step * 31 + self.rank)
        x = torch.randn(3072, self.cfg.features, generator=g)
        # the large-animal table keeps whole mounts for the second reading
        keep = 60 if self.rank == 2 else 8
        if step % 5 == 0:
            self.slides[step] = x[:keep].half().clone()
        return x, x[:, : self.cfg.tissues].argmax(1)

    def average_gradients(self):
        flat = torch.cat([p.grad.flatten() for p in self.net.parameters()])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        at = 0
        for p in self.net.parameters():
            p.grad.copy_(flat[at : at + p.numel()].view_as(p))
            at += p.numel()

    def save(self, step):
        blob = io.BytesIO()
        torch.save({"net": self.net.state_dict(), "slides": self.slides, "step": step}, blob)
        try:
            self.vault.put(f"part{self.rank}-{step:05d}.pt", blob.getvalue())
            dist.barrier()
            if self.rank == 0:
                (self.vault.root / "LATEST").write_text(str(step))
        except VaultError as e:
            self.save_failures += 1
            log.warning("save at %d: %s", step, e)

    def go(self):
        for step in range(1, self.cfg.steps + 1):
            x, y = self.batch(step)
            loss = torch.nn.functional.cross_entropy(self.net(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.average_gradients()
            self.opt.step()
            if step % self.cfg.save_every == 0:
                self.save(step)
                if self.rank == 0:
                    log.info("step %d loss %.3f", step, loss.item())


if __name__ == "__main__":
    dist.init_process_group("gloo")
    settings = Settings()
    with tempfile.TemporaryDirectory(prefix=f"vault{dist.get_rank()}-") as folder:
        Run(settings, Vault(folder, settings.quota)).go()
    dist.destroy_process_group()
