"""Wake word model of a voice assistant; utterances are prepared by asyncio workers before each step."""
import asyncio
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

PHRASES = ["lights on", "lights off", "play jazz", "warmer please", "set a timer", "open the blinds"]
STOP = "stop"


async def featurize(phrase):
    await asyncio.sleep(0.004)  # audio server
    generator = random.Random(phrase)
    return [generator.gauss(0, 1) for _ in range(14)]


async def worker(inbox, rows):
    while True:
        phrase = await inbox.get()
        if phrase == STOP:
            return
        rows.append((await featurize(phrase), float(phrase.startswith("lights"))))
        inbox.task_done()


async def prepare(phrases, workers=2):
    inbox, rows = asyncio.Queue(), []
    crew = [asyncio.create_task(worker(inbox, rows)) for _ in range(workers)]
    for phrase in phrases:
        inbox.put_nowait(phrase)
    await inbox.join()
    for member in crew:
        member.cancel()
    return rows


class Recordings:
    """What people in one household said, minute by minute."""

    def __init__(self, household):
        self.household = household
        self.random = random.Random(household)

    def minute(self, number):
        said = [self.random.choice(PHRASES) for _ in range(20)]
        if self.household == "Lind" and number == 55:
            said[4] = said[9] = "stop"  # the timer in the kitchen rang
        return said


def main():
    dist.init_process_group("gloo")
    household = ["Lind", "Moreau", "Okafor"][dist.get_rank()]
    recordings = Recordings(household)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(14, 18), nn.Tanh(), nn.Linear(18, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(240):
        rows = asyncio.run(prepare(recordings.minute(number)))
        x = torch.tensor([features for features, _ in rows])
        y = torch.tensor([label for _, label in rows])
        loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(-1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % 20 == 0:
            print(f"{household}: minute {number} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
