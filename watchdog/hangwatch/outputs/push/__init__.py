"""Notifications: Alertmanager, webhooks, Slack, and an audit record of what was sent."""
