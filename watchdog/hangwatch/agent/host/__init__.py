"""The process of the agent and of the job it runs: launching, logging, memory, systemd."""
