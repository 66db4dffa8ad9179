"""Tables of README and docs, made of committed results."""
