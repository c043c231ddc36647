"""One job on several nodes: digests, one lease, one capture of all nodes, one incident."""
