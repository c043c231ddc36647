"""The agent's process and the job that it runs: launching, logging, memory, systemd."""
