"""Tags the words of scanned addresses (street, number, town, code) and trains on the trays of the night shift."""
import logging
import random
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LOG = logging.getLogger("address-tags")
VOCABULARY, TAGS, WIDTH, LETTERS, PAD = 500, 6, 12, 16, 0


class Tagger(nn.Module):
    def __init__(self, size=48):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, size, padding_idx=PAD)
        self.reader = nn.GRU(size, size, batch_first=True, bidirectional=True)
        self.tags = nn.Linear(2 * size, TAGS)

    def forward(self, words):
        seen, _ = self.reader(self.words(words))
        return self.tags(seen)


def read_tray(tray, rank):
    """One tray from the camera: words that could be read, right-padded with PAD."""
    time.sleep(0.05)  # the belt moves
    rng = random.Random(tray * 101 + rank)
    longest = min((tray * 7 + rank * 3) % 53, WIDTH)
    words = torch.full((LETTERS, WIDTH), PAD)
    for letter in range(LETTERS):
        for place in range(longest):
            words[letter, place] = rng.randrange(1, VOCABULARY)
    return words, words % TAGS


def tag_loss(scores, words, tags):
    readable = (words != PAD).float()
    each = F.cross_entropy(scores.transpose(1, 2), tags, reduction="none")
    return (each * readable).sum() / readable.sum()


def common_width(words):
    """All sorters use the widest address of the tray, so that reports have the same columns."""
    own = torch.tensor([int((words != PAD).sum(1).max())])
    widths = [torch.zeros_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(widths, own)
    return max(int(w) for w in widths)


def train(rank, trays=400):
    model = DistributedDataParallel(Tagger())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for tray in range(1, trays):
        words, tags = read_tray(tray, rank)
        width = common_width(words)
        loss = tag_loss(model(words), words, tags)
        if not torch.isfinite(loss):
            LOG.warning("tray %d: loss is %s, next tray", tray, loss.item())
            continue
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if rank == 0 and tray % 10 == 0:
            LOG.info("tray %d width %d loss %.3f", tray, width, loss.item())


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    train(dist.get_rank())
    dist.destroy_process_group()
