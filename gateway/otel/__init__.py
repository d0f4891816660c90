"""OpenTelemetry: spans and GenAI metrics, by OTLP over HTTP. Loaded only where it is switched on.

1. No prompt, answer, key, or word of a caller's or an engine's own stands in an attribute: only
   names that policy knows, ids that the gateway made, numbers, and codes of a closed list.
2. Sending is the SDK's, on threads of its own behind bounded queues: a collector that is slow or
   away costs telemetry, never a call.

Names follow the semantic conventions for generative AI; what those lack is called `fairlane.…`.
"""
