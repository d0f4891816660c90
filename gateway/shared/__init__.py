"""The gateway's counters and queues on a server that all gateways share."""
