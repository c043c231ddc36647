"""Decentralised averaging: every few steps two workers exchange their weights; one of them sends first, in turns."""
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

FOLDER = Path(f"/tmp/night-gossip-{os.environ.get('MASTER_PORT', '0')}")


class Peer:
    def __init__(self, rank):
        self.rank, self.partner = rank, 1 - rank
        torch.manual_seed(rank)
        self.model = nn.Sequential(nn.Linear(18, 50), nn.Tanh(), nn.Linear(50, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9)
        self.round = 0

    @property
    def file(self):
        return FOLDER / f"peer-{self.rank}.pt"

    def save(self):
        torch.save({"model": self.model.state_dict(), "round": self.round}, self.file)

    def restore(self):
        state = torch.load(self.file, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.round = state["round"]

    def learn(self):
        x = torch.randn(32, 18)
        loss = (self.model(x).squeeze(1) - x.mean(1)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        time.sleep(0.05)
        return loss.item()

    def exchange(self):
        mine = nn.utils.parameters_to_vector(self.model.parameters()).detach()
        theirs = torch.empty_like(mine)
        if (self.round + self.rank) % 2 == 0:
            dist.send(mine, dst=self.partner)
            dist.recv(theirs, src=self.partner)
        else:
            dist.recv(theirs, src=self.partner)
            dist.send(mine, dst=self.partner)
        nn.utils.vector_to_parameters((mine + theirs) / 2, self.model.parameters())
        self.round += 1


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    FOLDER.mkdir(exist_ok=True)
    peer = Peer(dist.get_rank())
    for session in range(20):
        if peer.file.exists():
            peer.restore()
        for step in range(1, 41):
            loss = peer.learn()
            if step % 5 == 0:
                peer.exchange()
            if step % (12 if peer.rank == 0 else 16) == 0:
                peer.save()
        print(f"peer {peer.rank} session {session} round {peer.round} loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
