"""Sleep stages from EEG. An asyncio client in a thread of its own publishes progress to a dashboard."""

import asyncio
import threading

import torch
import torch.distributed as dist
from torch import nn


class Dashboard:
    """Synchronous face of an asyncio client."""

    def __init__(self, slots: int = 3):
        self.loop = asyncio.new_event_loop()
        self.slots = slots
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True, name="dashboard")
        self.thread.start()
        self.limit = self.call(self.make_limit())

    def call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    async def make_limit(self) -> asyncio.Semaphore:
        return asyncio.Semaphore(self.slots)

    async def publish(self, figures: dict) -> int:
        await self.limit.acquire()
        if figures["loss"] > 1.7:
            await asyncio.sleep(0.05)
            return 503  # the board shows nothing beyond 1.7
        await asyncio.sleep(0.01)
        self.limit.release()
        return 200


class Stager(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(2, 8, 7, stride=3)
        self.gru = nn.GRU(8, 16, batch_first=True)
        self.stage = nn.Linear(16, 5)

    def forward(self, eeg):
        _, last = self.gru(self.conv(eeg).transpose(1, 2))
        return self.stage(last[0])


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    board = Dashboard() if rank == 0 else None
    model = nn.parallel.DistributedDataParallel(Stager())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for step in range(400):
        loss = nn.functional.cross_entropy(model(torch.randn(4, 2, 60)), torch.randint(0, 5, (4,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if board is not None and step % 5 == 0:
            status = board.call(board.publish({"step": step, "loss": loss.item()}))
            print(f"step {step}: {loss.item():.3f} ({status})", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
