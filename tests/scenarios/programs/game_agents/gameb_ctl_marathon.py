"""Recurrent agent on an emulator that runs in real time; each update takes one whole game of every process."""
import logging
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FRAME_S = 1 / 25
log = logging.getLogger("marathon")


class Emulator:
    """Twenty-five frames a second; a game ends when the ball is lost."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.clock = time.monotonic()

    def reset(self, frames):
        self.left = frames
        self.clock = time.monotonic()
        self.screen = torch.randn(1, 80, generator=self.generator)
        return self.screen

    def step(self, action):
        self.clock += FRAME_S
        time.sleep(max(0.0, self.clock - time.monotonic()))
        self.left -= 1
        self.screen = torch.tanh(self.screen.roll(1, 1) + 0.1 * action)
        return self.screen, 1.0, self.left <= 0


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.memory = nn.GRU(80, 64, batch_first=True)
        self.paddle = nn.Linear(64, 3)

    def forward(self, screens):
        return self.paddle(self.memory(screens)[0])


def frames_of(game, rank):
    """Balls are lost after some frames; once in the evening somebody has a very good game."""
    if game == 14 and rank == 2:
        return 330
    return 4 + (game * 5 + rank) % 4


def play(net, emulator, frames):
    screens, score, done = [emulator.reset(frames)], 0.0, False
    with torch.no_grad():
        while not done:
            action = net(screens[-1].unsqueeze(0))[0, -1].argmax().item() - 1
            screen, reward, done = emulator.step(action)
            screens.append(screen)
            score += reward
            if len(screens) % 100 == 0:
                log.info("still in play, frame %d", len(screens))
    return torch.stack(screens, dim=1), score


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(10)
    net = Agent()
    model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    emulator = Emulator(rank)
    for game in range(40):
        screens, score = play(net, emulator, frames_of(game, rank))
        scores = [torch.zeros(1) for _ in range(world)]
        dist.all_gather(scores, torch.tensor([score]))
        loss = -torch.log_softmax(model(screens), dim=-1).max(dim=-1).values.mean() * score
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            log.info("game %d scores %s", game, [int(s) for s in scores])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
