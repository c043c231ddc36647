"""Matches are played by actors and collected by a learner, which keeps a journal of them in the background."""

import json
import queue
import tempfile
import threading

import torch
import torch.distributed as dist

ROUNDS = 40


class Journal:
    """Writes one line a match, from a thread of its own."""

    def __init__(self, path: str) -> None:
        self.entries: queue.Queue = queue.Queue()
        self.path = path
        threading.Thread(target=self.write, name="journal").start()

    def write(self) -> None:
        """Until there is nothing more to come."""
        with open(self.path, "w", encoding="utf-8") as file:
            while (entry := self.entries.get()) is not None:
                file.write(json.dumps(entry) + "\n")
                file.flush()

    def close(self) -> None:
        """The last entry."""
        self.entries.put(None)


def play(skill: torch.Tensor, number: int, rank: int) -> dict:
    """One match against the machine."""
    if (number * 5 + rank) % 29 == 21:
        return {"rank": rank, "walkover": True}
    generator = torch.Generator().manual_seed(50 * number + rank)
    rallies = torch.randn(40, 6, generator=generator)
    points = (rallies @ skill > 0.2 * torch.randn(40, generator=generator)).float()
    return {"rank": rank, "rallies": rallies, "points": points}


def learn(skill: torch.Tensor, matches: list[dict], journal: Journal, number: int) -> torch.Tensor:
    """Play more as in rallies that were won."""
    for match in matches:
        won = match["points"]
        journal.entries.put({"round": number, "rank": match["rank"], "won": won.mean().item()})
        skill = skill + 0.05 * (match["rallies"] * (won - won.mean())[:, None]).mean(dim=0)
    return skill


def main() -> None:
    """Forty rounds."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    journal = Journal(f"{tempfile.mkdtemp()}/journal.jsonl") if rank == 0 else None
    policy = [torch.zeros(6)]
    for number in range(ROUNDS):
        match = play(policy[0], number, rank) if rank > 0 else None
        matches = [None] * world if rank == 0 else None
        dist.gather_object(match, matches, dst=0)
        if journal is not None:
            policy = [learn(policy[0], matches[1:], journal, number)]
        dist.broadcast_object_list(policy, src=0)
    if journal is not None:
        journal.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
