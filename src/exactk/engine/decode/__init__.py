"""A policy's beam search on the CPU, compiled."""
