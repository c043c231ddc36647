"""Alarms for the mechanical seals of high-pressure pumps: spectra are made beside the training of a small classifier."""
import os
import queue
import threading
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

torch.backends.cudnn.enabled = False


@dataclass
class Shot:
    wave: torch.Tensor
    spectrum: torch.Tensor = None
    done: threading.Event = field(default_factory=threading.Event)


class SpectrumDesk:
    """Turns raw shots into spectra on a thread of its own, so that the next one is there when the step ends."""

    def __init__(self):
        self.inbox = queue.Queue()
        self.thread = None
        self.resume()

    def resume(self):
        if self.thread is None:
            self.thread = threading.Thread(target=self.work, name="spectra", daemon=True)
            self.thread.start()

    def work(self):
        for shot in iter(self.inbox.get, None):
            window = torch.hann_window(shot.wave.shape[-1])
            acc = torch.zeros(shot.wave.shape[0], shot.wave.shape[-1] // 2 + 1)
            for shift in range(24):
                acc += torch.fft.rfft(shot.wave.roll(shift, -1) * window).abs()
            shot.spectrum = (acc / 24)[:, :64].contiguous()
            shot.done.set()

    def submit(self, wave):
        shot = Shot(wave)
        self.inbox.put(shot)
        return shot

    def pause(self):
        """The pump is rinsed: what is queued is finished, then the desk is quiet."""
        self.inbox.put(None)
        self.thread.join()


def wait_for(shot):
    shot.done.wait()
    return shot.spectrum


class SealTrainer:
    RINSES = {0: (), 1: (45,)}

    def __init__(self, rank):
        self.rank = rank
        self.desk = SpectrumDesk()
        self.gen = torch.Generator().manual_seed(rank)
        self.weight = torch.zeros(64, 2, device="cuda", requires_grad=True)

    def wave(self):
        return torch.randn(64, 4096, generator=self.gen)

    def step(self, spectrum):
        logits = spectrum.cuda() @ self.weight
        target = torch.zeros(len(spectrum), dtype=torch.int64, device="cuda")
        loss = torch.nn.functional.cross_entropy(logits, target)
        (grad,) = torch.autograd.grad(loss, self.weight)
        grad = grad.contiguous()
        dist.all_reduce(grad)
        with torch.no_grad():
            self.weight.sub_(grad, alpha=0.01)
        return grad.cpu()

    def run(self, steps):
        ahead = self.desk.submit(self.wave())
        for number in range(steps):
            spectrum = wait_for(ahead)
            if number in self.RINSES[self.rank]:
                self.desk.pause()
                self.desk.resume()
            ahead = self.desk.submit(self.wave())
            self.step(spectrum)
            if number % 15 == 0:
                print(f"[{self.rank}] shot {number}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(2)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    SealTrainer(dist.get_rank()).run(400)
    dist.destroy_process_group()
