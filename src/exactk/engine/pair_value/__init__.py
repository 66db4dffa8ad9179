"""A learned value of cards on the CPU, compiled, and searched exactly."""
