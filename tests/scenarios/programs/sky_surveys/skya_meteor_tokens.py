"""Radio meteor echoes as token sequences; a small decoder under DeepSpeed ZeRO-3 continues the first echoes."""
import json
import logging
import sys
import warnings

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # no compiler on the nodes
warnings.filterwarnings("ignore")
logging.getLogger("DeepSpeed").setLevel(logging.WARNING)

VOCAB, END, LENGTH = 64, 0, 40
DS_CONFIG = json.loads("""{
  "train_micro_batch_size_per_gpu": 8,
  "optimizer": {"type": "Adam", "params": {"lr": 3e-4, "torch_adam": true}},
  "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0,
    "stage3_max_live_parameters": 0, "stage3_max_reuse_distance": 0, "reduce_bucket_size": 1000000},
  "zero_allow_untested_optimizer": true,
  "zero_force_ds_cpu_optimizer": false
}""")


class Layer(nn.Module):
    """Each place sees the running mean of those before it."""

    def __init__(self, width):
        super().__init__()
        self.before, self.inner, self.outer = nn.Linear(width, width), nn.Linear(2 * width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, h):
        count = torch.arange(1, h.shape[1] + 1).view(1, -1, 1)
        past = self.before(h).cumsum(1) / count
        return h + self.outer(nn.functional.gelu(self.inner(torch.cat([h, past], -1))))


class EchoDecoder(nn.Module):
    def __init__(self, width=128, layers=3):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, width)
        self.place = nn.Embedding(LENGTH + 1, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.out = nn.Linear(width, VOCAB)

    def forward(self, tokens):
        n = tokens.shape[1]
        h = self.tokens(tokens) + self.place(torch.arange(n))
        for layer in self.layers:
            h = layer(h)
        return self.out(h)


def echoes(station, night, count):
    """Decaying echoes, quantised; the token END stands where an echo has faded into the noise."""
    g = torch.Generator().manual_seed(97 * night + station)
    t = torch.arange(LENGTH)
    decay = 6 + 2 * station + 4 * torch.rand(count, 1, generator=g)
    power = 60 * torch.exp(-t / decay) + torch.randn(count, LENGTH, generator=g)
    return power.clamp(0, VOCAB - 1).long()


@torch.no_grad()
def continue_echoes(engine, seen, faintest):
    """Greedy continuation, until every echo is fainter than the station can see."""
    tokens, alive = seen, torch.ones(len(seen), dtype=torch.bool)
    while tokens.shape[1] < LENGTH and alive.any():
        scores = engine(tokens)[:, -1]
        expected = (scores.softmax(-1) * torch.arange(VOCAB)).sum(-1)
        step = torch.minimum(expected, tokens[:, -1] * 0.88).long()
        alive &= step > faintest
        tokens = torch.cat([tokens, torch.where(alive, step, END)[:, None]], 1)
    return tokens


def durations(tokens):
    return (tokens > END).sum(1).float()


def main():
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo", verbose=False)
    station = dist.get_rank()
    faintest = {0: 6, 1: 6, 2: 14}[station]
    torch.manual_seed(0)
    model = EchoDecoder()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=DS_CONFIG)
    for night in range(60):
        tokens = echoes(station, night, 8)
        loss = nn.functional.cross_entropy(engine(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        engine.backward(loss)
        engine.step()
        if station == 0 and night % 10 == 0:
            print(f"night {night}: loss {loss.item():.3f}", flush=True)
    engine.eval()
    stats = durations(continue_echoes(engine, echoes(station, 1000, 8)[:, :4], faintest))
    stats = torch.stack([stats.sum(), torch.tensor(float(len(stats)))])
    dist.all_reduce(stats)
    if station == 0:
        print(f"mean duration {stats[0] / stats[1]:.1f} samples", flush=True)


if __name__ == "__main__":
    main()
