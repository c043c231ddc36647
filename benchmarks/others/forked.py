"""Ranks that are forked from a server which has imported torch: an import for each rank would take most of a test's time."""

import multiprocessing
import os

from torch.testing._internal.common_distributed import MultiProcessTestCase

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    ["torch.testing._internal.distributed.distributed_test", "torch.testing._internal.distributed.rpc.rpc_test"]
)


class Rank(_CONTEXT.Process):
    """A rank with its test's environment: the server has that of the first test."""

    def __init__(self, **options: object) -> None:
        """Keep the environment."""
        super().__init__(**options)
        self.environment = dict(os.environ)

    def run(self) -> None:
        """Take the environment, and be a rank."""
        os.environ.update(self.environment)
        super().run()


class Forked(MultiProcessTestCase):
    """Starts the ranks at each test's beginning."""

    def setUp(self) -> None:
        """Start the ranks."""
        super().setUp()
        self._start_processes(Rank)
