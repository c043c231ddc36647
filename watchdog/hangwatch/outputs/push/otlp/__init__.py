"""OpenTelemetry: incidents as log events and spans, and the metrics, over OTLP (extra ``otel``; written for its SDK 1.45)."""
