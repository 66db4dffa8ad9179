"""A learned card value on the CPU: columns read, encoded and scored without torch."""
