"""Notifications: Alertmanager, webhooks, services of apprise and OTLP, and an audit record of what was sent."""
