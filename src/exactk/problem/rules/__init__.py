"""What a card must keep: rules on pairs and counts, read from Python or files, and why a request has no card."""
