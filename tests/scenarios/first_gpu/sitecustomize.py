"""What a rank imports at its start where all share the first GPU (``scenarios.on_gpu --all``).

The GPU is its only one, and NCCL takes the rank for a host of its own: it refuses a GPU that another rank of its host has.
The probe has read who the rank is before.
"""

import os

if "RANK" in os.environ and "LOCAL_RANK" in os.environ:
    os.environ["NCCL_HOSTID"] = "host" + os.environ["RANK"]
    os.environ["LOCAL_RANK"] = "0"
