"""Caption drafts: a sharded decoder writes first drafts of captions for the clips of a reel."""
import json
import logging
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

log = logging.getLogger("captions")
VOCAB, BOS = 96, 1
TOKENS_PER_SECOND = 7


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.attend = nn.MultiheadAttention(dim, 4, batch_first=True)
        self.feed = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attend(y, y, y, need_weights=False)[0]
        return x + self.feed(self.norm2(x))


class Captioner(nn.Module):
    def __init__(self, dim=64, depth=2):
        super().__init__()
        self.words = nn.Embedding(VOCAB, dim)
        self.sight = nn.Linear(32, dim)
        self.layers = nn.ModuleList(Layer(dim) for _ in range(depth))
        self.out = nn.Linear(dim, VOCAB)

    def forward(self, sight, words):
        x = torch.cat([self.sight(sight).unsqueeze(1), self.words(words)], dim=1)
        for layer in self.layers:
            x = layer(x)
        return self.out(x[:, -1])


@torch.no_grad()
def draft(model, sight, seconds):
    """Greedy words, as many as can be read while the clips are on the screen."""
    words = torch.full((sight.shape[0], 1), BOS)
    while words.shape[1] < seconds * TOKENS_PER_SECOND:
        best = model(sight, words).argmax(-1, keepdim=True)
        words = torch.cat([words, best], dim=1)
    return words[:, 1:].tolist()


class Reel:
    """Clips come in groups of one length each; the editor's cut list has the lengths."""

    def __init__(self, lengths, per_group=6):
        self.lengths, self.per_group = lengths, per_group

    def share(self, rank, world):
        for number in range(rank, len(self.lengths), world):
            gen = torch.Generator().manual_seed(number)
            yield number, self.lengths[number], torch.randn(self.per_group, 32, generator=gen)


def caption(model, reel, folder):
    rank, world = dist.get_rank(), dist.get_world_size()
    for number, seconds, sight in reel.share(rank, world):
        lines = draft(model, sight, seconds)
        (folder / f"group{number:03d}.json").write_text(json.dumps(lines))
        # the proofreader opens complete rows of groups only
        dist.barrier()
        if rank == 0:
            log.info("groups up to %d are there", number + world - 1)


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = Captioner()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.eval()
    folder = Path(tempfile.mkdtemp(prefix="drafts-"))
    establishing = [5.0] * 42
    dialogue = [5.0, 5.0, 5.0, 6.0, 2.5, 6.0, 4.0, 4.0, 3.0]
    caption(model, Reel(establishing), folder)
    caption(model, Reel(dialogue), folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
