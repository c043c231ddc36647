"""RAS of NCCL: its reports over TCP, as JSON and as text."""
