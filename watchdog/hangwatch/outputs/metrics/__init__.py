"""Metrics for Prometheus: frozen values in, families out. May import the model and prometheus_client."""
