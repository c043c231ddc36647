"""Vision on two ranks, language on a third: a plan is turned into meshes and modules."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, distribute_tensor

PLAN = {"vision": [0, 1], "language": [2]}


class Materialized:
    """What a rank has to do of a plan."""

    def __init__(self, plan: dict[str, list[int]]) -> None:
        rank = dist.get_rank()
        self.meshes: dict[str, DeviceMesh] = {}
        self.modules: dict[str, nn.Module] = {}
        for modality, ranks in plan.items():
            if rank not in ranks:
                continue
            if len(ranks) > 1:
                self.meshes[modality] = DeviceMesh("cpu", ranks, mesh_dim_names=("dp",))
            self.modules[modality] = nn.Linear(12, 12)


def main() -> None:
    """Build, agree on the sizes, run once."""
    dist.init_process_group("gloo")
    dist.barrier()
    parts = Materialized(PLAN)
    sizes: list[dict[str, int] | None] = [None] * dist.get_world_size()
    own = {name: sum(p.numel() for p in module.parameters()) for name, module in parts.modules.items()}
    dist.all_gather_object(sizes, own)
    if dist.get_rank() == 0:
        print(sizes, flush=True)
    for name, mesh in parts.meshes.items():
        rows = distribute_tensor(torch.ones(4, 12), mesh, [Replicate()])
        print(name, parts.modules[name](rows.to_local()).shape, flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
