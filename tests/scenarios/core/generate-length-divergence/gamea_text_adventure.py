"""Rollouts of a small text-adventure model: narrate scenes, score them, take a policy-gradient step. Weights are sharded (FSDP2)."""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

VOCAB, CONTEXT = 96, 32
CHAPTERS = {  # scenes of each chapter by the number of turns that the player takes in them
    "harbour": [6, 9, 8, 7],
    "crypt": [9, 7, 8, 9],
    "summit": [9, 9, 6, 9],
}


class Narrator(nn.Module):
    def __init__(self, width=96, layers=2):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCAB, width), nn.Embedding(CONTEXT, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True) for _ in range(layers))
        self.out = nn.Linear(width, VOCAB)

    def forward(self, text):
        h = self.tokens(text) + self.places(torch.arange(text.shape[1]))
        for layer in self.layers:
            h = layer(h)
        return self.out(h)


class Scene:
    def __init__(self, opening, turns, words_per_turn=3):
        self.text, self.left = opening, turns * words_per_turn
        self.start = opening.shape[1]

    def over(self):
        return self.left <= 0

    def add(self, word):
        self.text = torch.cat([self.text, word], dim=1)
        self.left -= 1


class Rollouts:
    def __init__(self, model, rank):
        self.model = model
        self.chapter = list(CHAPTERS)[rank % len(CHAPTERS)]
        self.rng = torch.Generator().manual_seed(rank)

    @torch.no_grad()
    def narrate(self, turns, players=8):
        scene = Scene(torch.randint(VOCAB, (players, 4), generator=self.rng), turns)
        while not scene.over():
            logits = self.model(scene.text[:, -CONTEXT:])[:, -1]
            scene.add(torch.multinomial(logits.softmax(-1), 1, generator=self.rng))
        return scene.text

    def episode(self, number, warmup=10):
        scenes = CHAPTERS[self.chapter]
        # the first episodes all have the short form
        turns = 5 if number < warmup else scenes[number % len(scenes)]
        text = self.narrate(turns)
        return text[:, -CONTEXT:], (text % 7 == 0).float().mean(1)


def learn(model, optim, text, reward, baseline):
    logp = model(text[:, :-1]).log_softmax(-1).gather(2, text[:, 1:, None]).mean((1, 2))
    loss = -(logp * (reward - baseline)).mean()
    loss.backward()
    optim.step()
    optim.zero_grad()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(5)
    model = Narrator()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for module in model.modules():
        if hasattr(module, "set_force_sum_reduction_for_comms"):
            module.set_force_sum_reduction_for_comms(True)
    optim = torch.optim.Adam(model.parameters(), lr=1e-4)
    rollouts = Rollouts(model, dist.get_rank())
    for number in range(300):
        text, reward = rollouts.episode(number)
        baseline = reward.mean()
        dist.all_reduce(baseline)
        baseline /= dist.get_world_size()
        learn(model, optim, text, reward, baseline)
        if dist.get_rank() == 0:
            print(f"episode {number} words {text.numel()} baseline {baseline.item():.3f}", flush=True)
    dist.destroy_process_group()


main()
