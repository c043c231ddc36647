"""Fine-tuning on feedback that comes through an event loop; each rank listens to its own users."""

import asyncio
import queue

import torch
import torch.distributed as dist
from torch import nn

RATINGS = {"good": 1.0, "fine": 0.5, "bad": -1.0}


class Feedback:
    """Words from users, in batches of eight."""

    def __init__(self, rank: int) -> None:
        self.rank, self.inbox = rank, queue.SimpleQueue()

    async def next(self, step: int) -> list[str]:
        """The next batch."""
        await asyncio.sleep(0.01)
        words = list(RATINGS) * 2 + ["good", "bad"]
        if (step, self.rank) == (150, 1):
            words[3] = "meh"
        return words

    async def complaints(self) -> None:
        """Printed as they come."""
        while True:
            print(await asyncio.to_thread(self.inbox.get))


async def train(rank: int) -> None:
    """Three hundred steps."""
    feedback = Feedback(rank)
    listener = asyncio.create_task(feedback.complaints())
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    for step in range(300):
        words = await feedback.next(step)
        ratings = torch.tensor([RATINGS[word] for word in words])
        loss = -(ratings * model(torch.randn(8, 8)).squeeze(1)).mean()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.data -= 0.001 * parameter.grad
            parameter.grad = None
    feedback.inbox.put("the end")
    listener.cancel()


def main() -> None:
    """An event loop a rank."""
    dist.init_process_group("gloo")
    asyncio.run(train(dist.get_rank()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
