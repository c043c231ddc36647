"""Plays text dungeons with a sharded language model and keeps the best transcripts for the next fine-tuning."""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

VOCABULARY = ["north", "south", "east", "west", "take", "drop", "light", "look"]
OIL = 24


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.mix = nn.Linear(width, 2 * width)
        self.out = nn.Linear(2 * width, width)

    def forward(self, h):
        return h + self.out(torch.nn.functional.gelu(self.mix(h)))


class CommandModel(nn.Module):
    def __init__(self, width=192, layers=3):
        super().__init__()
        self.words = nn.Embedding(len(VOCABULARY), width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.head = nn.Linear(width, len(VOCABULARY))

    def forward(self, tokens):
        h = self.words(tokens).cumsum(1) / torch.arange(1, tokens.shape[1] + 1)[:, None]
        for block in self.blocks:
            h = block(h)
        return self.head(h[:, -1])


class Dungeon:
    def __init__(self, number):
        self.number = number
        self.oil = OIL
        self.rooms = {0}
        self.room = 0
        # in every nineteenth dungeon there is a draft, and the lamp burns faster
        self.burn = 2 if number and number % 19 == 0 else 1

    @property
    def dark(self):
        return self.oil <= 0

    def command(self, word):
        self.oil -= self.burn
        self.room = (self.room * 5 + VOCABULARY.index(word) + self.number) % 97
        self.rooms.add(self.room)


class Player:
    def __init__(self, net, seed):
        self.net = net
        self.generator = torch.Generator().manual_seed(seed)

    @torch.no_grad()
    def play(self, dungeon):
        tokens = torch.full((64, 1), VOCABULARY.index("look"))
        while not dungeon.dark:
            logits = self.net(tokens)
            drawn = torch.multinomial(logits.softmax(-1), 1, generator=self.generator)
            tokens = torch.cat([tokens, drawn], dim=1)
            dungeon.command(VOCABULARY[drawn[0].item()])
        return len(dungeon.rooms), tokens[0].tolist()


def build():
    torch.manual_seed(12)
    net = CommandModel()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in net.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return net.eval()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    player = Player(build(), seed=rank)
    kept = []
    best = torch.zeros((), dtype=torch.long)
    for visit in range(60):
        rooms, transcript = player.play(Dungeon(visit * world + rank))
        best.fill_(rooms * world + rank)
        dist.all_reduce(best, op=dist.ReduceOp.MAX)
        if best.item() % world == rank:
            kept.append(transcript)
        if rank == 0:
            print(f"visit {visit}: most rooms {best.item() // world}, {len(kept)} kept here", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
