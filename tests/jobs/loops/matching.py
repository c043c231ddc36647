"""Rank 1 cleans its texts with a regular expression that never ends on one of them, in one call that keeps the GIL."""

import re

import datasets
import torch.distributed as dist

dist.init_process_group("gloo")
texts = ["a plain sentence"] * 50
if dist.get_rank() == 1:
    texts.append("=" * 60 + "!")
_RULER = re.compile(r"^(=+)+$")


def clean(row: dict[str, str]) -> dict[str, bool]:
    return {"is_ruler": _RULER.match(row["text"]) is not None}


dist.barrier()
rows = datasets.Dataset.from_dict({"text": texts}).map(clean)
dist.barrier()
dist.destroy_process_group()
