"""The tests of RPC that ship in torch, on TensorPipe (as pytorch's test/distributed/rpc/test_tensorpipe_agent.py)."""

from torch.testing._internal.common_distributed import MultiProcessTestCase
from torch.testing._internal.distributed.rpc import dist_autograd_test, dist_optimizer_test, rpc_test
from torch.testing._internal.distributed.rpc.tensorpipe_rpc_agent_test_fixture import TensorPipeRpcAgentTestFixture

from .forked import Forked


class _OnTensorPipe(Forked, TensorPipeRpcAgentTestFixture, MultiProcessTestCase):
    pass


class TestRpc(rpc_test.RpcTest, _OnTensorPipe):
    """Calls, remote references, shutdown."""


class TestAutograd(dist_autograd_test.DistAutogradTest, _OnTensorPipe):
    """Gradients through calls."""


class TestOptimizer(dist_optimizer_test.DistOptimizerTest, _OnTensorPipe):
    """Optimizers of remote parameters."""
