"""The simulated engine over HTTP, with vLLM's endpoints, errors and metric names."""
