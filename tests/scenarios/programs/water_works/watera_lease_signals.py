"""Traffic-signal timing by policy gradient on borrowed machines; a machine's lease ends with a signal."""
import os
import queue
import signal
import threading
import time

import torch
import torch.distributed as dist

LEASES = {"node-a": None, "node-b": None, "node-c": 5.0}  # seconds that are left, None: ours


class Lease:
    """Turns the end of the lease (SIGALRM) into a flag that the loop looks at."""

    def __init__(self, seconds):
        self.over = False
        signal.signal(signal.SIGALRM, self._note)
        if seconds is not None:
            signal.setitimer(signal.ITIMER_REAL, seconds)

    def _note(self, signum, frame):
        self.over = True


class Uploader(threading.Thread):
    """Copies checkpoints to the shared store, one after another."""

    def __init__(self, folder):
        super().__init__(name="uploader")
        self.folder = folder
        self.jobs = queue.Queue()

    def run(self):
        os.makedirs(self.folder, exist_ok=True)
        while True:
            job = self.jobs.get()
            if job is None:
                return
            name, state = job
            torch.save(state, os.path.join(self.folder, name))


class Intersection:
    """Two approaches with queues; the action is the share of green for the first."""

    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)

    def rollout(self, logits_of, horizon=20):
        queues, wait, logs = torch.zeros(2), 0.0, []
        for _ in range(horizon):
            time.sleep(0.003)
            queues = queues + torch.rand(2, generator=self.g)
            choice = torch.distributions.Bernoulli(logits=logits_of(queues))
            green = choice.sample()
            logs.append(choice.log_prob(green))
            served = 1.2 * torch.stack([green, 1 - green])
            queues = (queues - served).clamp(min=0)
            wait += queues.sum().item()
        return torch.stack(logs).sum(), wait / horizon


def average(weights):
    flat = torch.cat([w.grad.flatten() for w in weights])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    at = 0
    for w in weights:
        w.grad.copy_(flat[at : at + w.numel()].view_as(w))
        at += w.numel()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    lease = Lease(list(LEASES.values())[rank])
    uploader = Uploader("store")
    uploader.start()
    torch.manual_seed(0)
    weight, bias = torch.zeros(2, requires_grad=True), torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight, bias], lr=0.01)
    crossing, baseline = Intersection(rank), 0.0
    for episode in range(600):
        if lease.over:
            uploader.jobs.put((f"lease-{rank}.pt", {"weight": weight.detach(), "episode": episode}))
            print(f"[{rank}] lease is over, policy of episode {episode} stored", flush=True)
            return
        log_prob, wait = crossing.rollout(lambda q: (weight * q).sum() + bias.squeeze())
        loss = log_prob * (wait - baseline)
        baseline = 0.9 * baseline + 0.1 * wait
        optimizer.zero_grad()
        loss.backward()
        average([weight, bias])
        optimizer.step()
        if rank == 0 and episode % 25 == 0:
            print(f"episode {episode}: mean queue {wait:.2f}", flush=True)
    uploader.jobs.put((f"final-{rank}.pt", {"weight": weight.detach()}))
    uploader.jobs.put(None)
    dist.barrier()


if __name__ == "__main__":
    main()
