"""The tests of collectives and DDP that ship in torch, on Gloo (as pytorch's test/distributed/test_distributed_spawn.py)."""

from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend


class TestGloo(TestDistBackend, DistributedTest._DistTestBase):
    """All of them; those that need a GPU skip themselves."""

    def setUp(self) -> None:
        """Start the ranks."""
        super().setUp()
        self._spawn_processes()
