"""GAttN with an exact decoder on the CPU, compiled: from a log's columns to the values of candidates and pairs."""
