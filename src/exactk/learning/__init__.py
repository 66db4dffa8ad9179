"""How models learn from logged cards: losses, exploration, one training loop, checkpoints."""
