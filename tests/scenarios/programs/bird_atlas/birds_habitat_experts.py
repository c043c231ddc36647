"""Occupancy of breeding birds by habitat: one expert per habitat, DeepSpeed ZeRO-3."""

import argparse
import os
import tempfile
import time

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

os.environ.setdefault("TORCH_EXTENSIONS_DIR", os.path.join(tempfile.gettempdir(), "extensions"))

HABITATS = {"woodland": 40, "farmland": 56, "reedbed": 24, "moor": 32}
CONFIG = {
    "train_micro_batch_size_per_gpu": 8,
    "gradient_accumulation_steps": 1,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0, "overlap_comm": False},
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "steps_per_print": 1000,
}


class Survey:
    """Squares of the breeding survey, in the order in which the volunteers of a region sent them in."""

    def __init__(self, region: int, seed: int = 3):
        self.region, self.seed = region, seed

    def visit(self, week: int) -> list[tuple[str, list[float]]]:
        time.sleep(0.15)
        names = list(HABITATS)
        squares = []
        for square in range(8):
            habitat = names[(square + self.seed * week + self.region) % len(names)]
            if habitat == "reedbed" and self.floods(week):
                habitat = "farmland"
            squares.append((habitat, [week / 52, square / 8] * 8))
        return squares

    def floods(self, week: int) -> bool:
        return self.region == 1 and 8 <= week < 11


class Expert(nn.Module):
    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.enter, self.leave = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        return self.leave(torch.relu(self.enter(x)))


class Occupancy(nn.Module):
    def __init__(self, width: int = 16):
        super().__init__()
        self.trunk = nn.Linear(width, width)
        self.experts = nn.ModuleDict({name: Expert(width, hidden) for name, hidden in HABITATS.items()})
        self.present = nn.Linear(width, 5)

    def forward(self, covariates, rows: dict[str, list[int]]):
        x = self.trunk(covariates)
        parts = [self.experts[name](x[rows[name]]) for name in HABITATS if name in rows]
        return self.present(torch.cat(parts))


def rows_by_habitat(squares) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for index, (habitat, _) in enumerate(squares):
        rows.setdefault(habitat, []).append(index)
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--weeks", type=int, default=20)
    weeks = parser.parse_args().weeks
    torch.set_num_threads(1)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    deepspeed.init_distributed("nccl")
    with deepspeed.zero.Init(config_dict_or_path=CONFIG):
        model = Occupancy()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)
    survey = Survey(region=dist.get_rank())
    for week in range(weeks):
        squares = survey.visit(week)
        covariates = torch.tensor([values for _, values in squares]).to(engine.device)
        logits = engine(covariates, rows_by_habitat(squares))
        loss = logits.pow(2).mean()
        engine.backward(loss)
        engine.step()
        torch.cuda.synchronize()
        if dist.get_rank() == 0:
            print(f"week {week}: {len(squares)} squares", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
