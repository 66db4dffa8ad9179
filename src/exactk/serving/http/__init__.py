"""The protocol: bytes, limits, problems; no card is decided here."""
