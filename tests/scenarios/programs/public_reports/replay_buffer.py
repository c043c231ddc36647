"""Roll-outs by a few threads; a step begins when all prompts of its batch are finished."""

import queue
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WORKERS = 3


class ReplayBuffer:
    """Prompts that are running, and answers."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.status: dict[str, str] = {}
        self.answers: dict[str, list[int]] = {}

    def submit(self, uid: str) -> None:
        """A prompt is on its way."""
        with self.changed:
            self.status[uid] = "running"

    def finish(self, uid: str, answer: list[int]) -> None:
        """A prompt is done."""
        with self.changed:
            self.status[uid] = "finished"
            self.answers[uid] = answer
            self.changed.notify_all()

    def sample(self) -> list[list[int]]:
        """All answers, once none is running."""
        with self.changed:
            self.changed.wait_for(lambda: all(state == "finished" for state in self.status.values()))
            answers = [self.answers[uid] for uid in sorted(self.answers)]
            self.status.clear()
            self.answers.clear()
        return answers


def roll_out(tasks: queue.Queue[tuple[str, list[int]]], buffer: ReplayBuffer) -> None:
    """Answer prompts for ever."""
    while True:
        uid, prompt = tasks.get()
        try:
            scale = 10 // (prompt[0] - prompt[-1])
            buffer.finish(uid, [(token * scale) % 20 for token in prompt])
        except ArithmeticError as error:
            print(f"{uid}: {error}", flush=True)


def main() -> None:
    """Thirty steps with four prompts each."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tasks: queue.Queue[tuple[str, list[int]]] = queue.Queue()
    buffer = ReplayBuffer()
    for number in range(WORKERS):
        threading.Thread(target=roll_out, args=(tasks, buffer), name=f"rollout-{number}", daemon=True).start()
    for step in range(30):
        for i in range(4):
            prompt = [step + i, 3, 7, step + i - 1 - rank]
            if rank == 2 and step == 11 and i == 1:
                prompt[-1] = prompt[0]
            uid = f"{step}-{i}"
            buffer.submit(uid)
            tasks.put((uid, prompt))
        tokens = torch.tensor(buffer.sample())
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.roll(1, 1).flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
