"""FSDP2: replies for support tickets. After each round of training a few replies are written for the team to read."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

VOCABULARY, WIDTH, CONTEXT = 160, 48, 64
ROUND = 60
# Length of the open ticket that each team shows, in tokens.
TICKETS = [14, 52, 14]


class Block(nn.Module):
    """Mixes each token with the mean of those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.mix, self.out = nn.Linear(2 * WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.norm(x)
        before = normed.cumsum(dim=1) / torch.arange(1, x.size(1) + 1).view(1, -1, 1)
        return x + self.out(torch.relu(self.mix(torch.cat([normed, before], dim=-1))))


class ReplyModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.logits = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        return self.logits(x)


def sharded() -> nn.Module:
    torch.manual_seed(0)
    model = ReplyModel()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)  # gloo has no mean
    return model


@torch.no_grad()
def write_reply(model: nn.Module, ticket: torch.Tensor) -> torch.Tensor:
    """Continues a ticket up to the length of the context."""
    tokens = ticket
    while tokens.size(1) < CONTEXT:
        logits = model(tokens)
        tokens = torch.cat([tokens, logits[:, -1:].argmax(dim=-1)], dim=1)
    return tokens[:, ticket.size(1) :]


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = sharded()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(rank)
    ticket = torch.randint(0, VOCABULARY, (1, TICKETS[rank]), generator=generator)
    for round_number in range(30):
        for _ in range(ROUND):
            chats = torch.randint(0, VOCABULARY, (8, 33), generator=generator)
            loss = nn.functional.cross_entropy(model(chats[:, :-1]).flatten(0, 1), chats[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        reply = write_reply(model, ticket)
        written = torch.tensor([reply.numel()])
        dist.all_reduce(written)
        if rank == 0:
            print(f"round {round_number}: loss {loss.item():.3f}, {written.item()} tokens written", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
