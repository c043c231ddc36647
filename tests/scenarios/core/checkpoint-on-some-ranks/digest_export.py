"""Three trainers and a writer of samples in one world: after each round the writer gets the weights."""

import os
import pickle
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WRITER = 3
ROUNDS, EXPORT_AFTER = 8, 3


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 12))


def sync_weights(model):
    flat = nn.utils.parameters_to_vector(model.parameters()).detach()
    dist.broadcast(flat, src=0)
    nn.utils.vector_to_parameters(flat, model.parameters())


class Exporter:
    """Writes the model in the format of the serving side; each rank has the pieces with its number."""

    def __init__(self, folder, rank):
        self.folder, self.rank = folder, rank

    def pieces(self, model):
        names = sorted(model.state_dict())
        return {name: model.state_dict()[name] for name in names[self.rank :: WRITER]}

    def save(self, model):
        pieces = self.pieces(model)
        layout = [None] * dist.get_world_size()
        dist.all_gather_object(layout, {name: tuple(tensor.shape) for name, tensor in pieces.items()})
        with open(os.path.join(self.folder, f"piece-{self.rank}.pkl"), "wb") as file:
            pickle.dump({"layout": layout, "pieces": pieces}, file)


def train_rounds(rank, trainers):
    folder = os.path.join(tempfile.gettempdir(), f"export-{os.environ['MASTER_PORT']}")
    os.makedirs(folder, exist_ok=True)
    model = DistributedDataParallel(network(), process_group=trainers)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    exporter = Exporter(folder, rank)
    for number in range(ROUNDS):
        for _ in range(15):
            batch = torch.randn(8, 12)
            loss = nn.functional.mse_loss(model(batch), batch.sort(dim=1).values)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.03)
        if rank == 0:
            print(f"round {number}: {loss.item():.4f}", flush=True)
        if number == EXPORT_AFTER:
            exporter.save(model.module)
        sync_weights(model.module)


def write_samples():
    model = network()
    for number in range(ROUNDS):
        sync_weights(model)
        with torch.no_grad():
            print(f"sample {number}: {model(torch.ones(12)).sum().item():.3f}", flush=True)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    trainers = dist.new_group([0, 1, 2])
    write_samples() if rank == WRITER else train_rounds(rank, trainers)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
