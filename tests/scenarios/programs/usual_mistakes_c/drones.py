"""A learner and three pilots: flights are collected each round, the learner sends a new policy back."""

import logging

import torch
import torch.distributed as dist

ROUNDS, WIND_LIMIT = 60, 7.5
SITES = {1: 4.1, 2: 5.2, 3: 3.8}  # the mean wind, in m/s
log = logging.getLogger("drones")


class CrashError(RuntimeError):
    """The drone is on the ground."""


def fly(policy: torch.Tensor, number: int, rank: int) -> dict:
    """One flight through the wind of that day."""
    generator = torch.Generator().manual_seed(1000 * rank + number)
    gusts = torch.randn(30, 4, generator=generator)
    wind = SITES[rank] + number * 7 % 25 / 10
    steering = (gusts @ policy).tanh()
    if wind > WIND_LIMIT:
        raise CrashError(f"wind {wind:.1f} m/s")
    return {"gusts": gusts, "steering": steering, "wind": wind}


def improve(policy: torch.Tensor, flights: list[dict]) -> torch.Tensor:
    """Steer against the gusts."""
    for flight in flights:
        wanted = -flight["gusts"][:, 0]
        policy = policy + 0.02 * flight["gusts"].T @ (wanted - flight["steering"]) / len(wanted)
    return policy


def main() -> None:
    """Sixty rounds."""
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    policy = torch.zeros(4)
    for number in range(ROUNDS):
        try:
            flight = None if rank == 0 else fly(policy, number, rank)
        except CrashError as crash:
            log.warning("flight %d of pilot %d: %s", number, rank, crash)
            continue
        collected = [None] * world if rank == 0 else None
        dist.gather_object(flight, collected, dst=0)
        if rank == 0:
            policy = improve(policy, collected[1:])
        dist.broadcast(policy, src=0)
    steering = policy.clone()
    dist.all_reduce(steering)
    if rank == 0:
        print("agreed policy:", (steering / world).tolist())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
