"""A launcher that does not supervise: ``unsupervised.py N PROGRAM ...`` starts N ranks and waits for all of them.

A rank that dies is nobody's business here, as with a shell script that ends its lines in ``&`` and then waits.
"""

import os
import subprocess
import sys

from torch.distributed import TCPStore

if __name__ == "__main__":
    world = int(sys.argv[1])
    # The store is bound first, so that no other process can take its port in between.
    store = TCPStore("127.0.0.1", 0, world, is_master=True, wait_for_workers=False)
    shared = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "WORLD_SIZE": str(world),
    }
    ranks = [
        subprocess.Popen([sys.executable, *sys.argv[2:]], env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(world)
    ]
    sys.exit(max(abs(rank.wait()) for rank in ranks))
