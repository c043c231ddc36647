"""Send and receive: one rank learns to leave a maze, the others play it with the weights of a while ago."""

import torch
import torch.distributed as dist
from torch import nn

STATES, ACTIONS, LENGTH = 16, 4, 20
GAMES, PUBLISHED_EVERY, FETCHED_EVERY = 60, 10, 8


def build() -> nn.Module:
    """The policy."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(STATES, 32), nn.Tanh(), nn.Linear(32, ACTIONS))


def play(policy: nn.Module, generator: torch.Generator) -> torch.Tensor:
    """A game: where it was, what it did, what it got for it."""
    states = torch.randn(LENGTH, STATES, generator=generator)
    with torch.no_grad():
        actions = torch.multinomial(policy(states).softmax(dim=1), 1, generator=generator)
    rewards = (actions.squeeze(1) == states[:, :ACTIONS].argmax(dim=1)).float()
    return torch.cat([states, actions.float(), rewards[:, None]], dim=1)


def publish(policy: nn.Module, players: range) -> None:
    """To everyone who plays."""
    flat = nn.utils.parameters_to_vector(policy.parameters()).detach()
    for player in players:
        dist.send(flat, dst=player)


def learn(players: range) -> None:
    """A step for each round of games."""
    policy = build()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    game = torch.empty(LENGTH, STATES + 2)
    publish(policy, players)
    for turn in range(1, GAMES + 1):
        loss, won = torch.zeros(()), 0.0
        for player in players:
            dist.recv(game, src=player)
            states, actions, rewards = game[:, :STATES], game[:, STATES].long(), game[:, -1]
            chosen = policy(states).log_softmax(dim=1).gather(1, actions[:, None]).squeeze(1)
            loss, won = loss - (chosen * (rewards - 0.25)).mean(), won + rewards.sum().item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if turn % PUBLISHED_EVERY == 0:
            publish(policy, players)
            print(f"turn {turn}: {won / len(players):.1f} of {LENGTH}")


def act(rank: int) -> None:
    """Games, with new weights now and then."""
    policy = build()
    generator = torch.Generator().manual_seed(rank)
    for played in range(GAMES):
        if played % FETCHED_EVERY == 0:
            flat = nn.utils.parameters_to_vector(policy.parameters()).detach()
            dist.recv(flat, src=0)
            nn.utils.vector_to_parameters(flat, policy.parameters())
        dist.send(play(policy, generator), dst=0)


def main() -> None:
    """Rank 0 learns."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        learn(range(1, world))
    else:
        act(rank)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
