"""Self-play: rank 0 learns, all others play games; ratings go through a group of their own."""

import functools

import torch
import torch.distributed as dist
from torch import nn

BOARD, MOVES = 25, 12


@functools.cache
def league() -> dist.ProcessGroup:
    """For ratings, so that they do not get in the way of weights and games."""
    return dist.new_group()


def play(net: nn.Module, seed: int) -> tuple[torch.Tensor, float]:
    """One game: its positions and who won."""
    generator = torch.Generator().manual_seed(seed)
    positions = torch.randint(-1, 2, (MOVES, BOARD), generator=generator).float()
    with torch.no_grad():
        value = net(positions).mean().item()
    winner = 1.0 if positions[-1].sum().item() + value > 0 else -1.0
    return positions, winner


def learner(net: nn.Module, games: int) -> None:
    """Takes games and improves the net."""
    world = dist.get_world_size()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for game in range(games):
        for parameter in net.parameters():
            dist.broadcast(parameter.data, src=0)
        positions = [torch.empty(MOVES, BOARD + 1) for _ in range(world)]
        dist.gather(torch.zeros(MOVES, BOARD + 1), positions, dst=0)
        batch = torch.cat(positions[1:])
        loss = (net(batch[:, :BOARD]) - batch[:, BOARD:]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if game % 10 == 9:
            wins = torch.zeros(1)
            dist.all_reduce(wins, group=league())
            print(f"game {game}: loss {loss.item():.4f}, {wins.item():.0f} wins so far", flush=True)


def player(net: nn.Module, games: int) -> None:
    """Plays with the newest net; every tenth game it is added up how often it wins."""
    rank, ratings = dist.get_rank(), league()
    wins = torch.zeros(1)
    for game in range(games):
        for parameter in net.parameters():
            dist.broadcast(parameter.data, src=0)
        positions, winner = play(net, 1000 * rank + game)
        wins += winner > 0
        dist.gather(torch.cat([positions, torch.full((MOVES, 1), winner)], dim=1), dst=0)
        if game % 10 == 9:
            dist.all_reduce(wins.clone(), group=ratings)


def main() -> None:
    """A hundred games for each player."""
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    net = nn.Sequential(nn.Linear(BOARD, 64), nn.ReLU(), nn.Linear(64, 1), nn.Tanh())
    if dist.get_rank() == 0:
        learner(net, games=100)
    else:
        player(net, games=100)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
