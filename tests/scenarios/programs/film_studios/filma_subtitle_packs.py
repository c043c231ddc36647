"""Line breaker for subtitles: cues of a season, packed into windows of a fixed reading time."""
import argparse
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

VOCAB, WINDOW = 128, 64


class SeasonCues(IterableDataset):
    """Cues of the episodes of one rank, joined until a window is full."""

    def __init__(self, episodes, rank, world):
        self.episodes = episodes[rank::world]

    @staticmethod
    def cues(episode, count=700):
        rng = random.Random(episode)
        # documentaries are narrated, the others are talk
        longest = 11 if episode % 3 == 1 else 16
        for _ in range(count):
            yield [rng.randrange(2, VOCAB) for _ in range(rng.randrange(5, longest))] + [1]

    def __iter__(self):
        window = []
        for episode in self.episodes:
            for cue in self.cues(episode):
                if len(window) + len(cue) > WINDOW:
                    yield torch.tensor(window + [0] * (WINDOW - len(window)))
                    window = []
                window += cue


class Breaker(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim, padding_idx=0)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, 1)

    def forward(self, tokens):
        hidden, _ = self.rnn(self.embed(tokens))
        return self.out(hidden).squeeze(-1)


def collect_stats(losses, windows):
    """One row for each rank: windows read, mean loss."""
    row = torch.tensor([float(windows), sum(losses) / max(len(losses), 1)])
    rows = [torch.empty_like(row) for _ in range(dist.get_world_size())]
    dist.all_gather(rows, row)
    return torch.stack(rows)


def train(args):
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(args.seed)
    model = DistributedDataParallel(Breaker())
    optim = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loader = DataLoader(SeasonCues(list(range(args.episodes)), rank, world), batch_size=8, drop_last=True)
    for season in range(args.seasons):
        losses = []
        for tokens in loader:
            target = (tokens == 1).float()
            loss = nn.functional.binary_cross_entropy_with_logits(model(tokens), target)
            optim.zero_grad()
            loss.backward()
            optim.step()
            losses.append(loss.item())
            if rank == 0 and len(losses) % 25 == 0:
                print(f"season {season} window {8 * len(losses)} loss {losses[-1]:.4f}", flush=True)
        stats = collect_stats(losses, 8 * len(losses))
        if rank == 0:
            print(f"season {season}: {stats.tolist()}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=24)
    parser.add_argument("--seasons", type=int, default=3)
    parser.add_argument("--seed", type=int, default=4)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(parser.parse_args())
    dist.destroy_process_group()
