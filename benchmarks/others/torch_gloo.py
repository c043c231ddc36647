"""The tests of collectives and DDP that ship in torch, on Gloo (as pytorch's test/distributed/test_distributed_spawn.py)."""

from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend

from .forked import Forked


class TestGloo(Forked, TestDistBackend, DistributedTest._DistTestBase):
    """All of them; those that need a GPU skip themselves."""
