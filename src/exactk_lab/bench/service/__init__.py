"""The service: throughput, latency, memory, what it takes to install and start."""
