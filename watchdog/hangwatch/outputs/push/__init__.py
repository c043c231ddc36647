"""Notifications: Alertmanager, webhooks, Slack, and a record of what was sent."""
