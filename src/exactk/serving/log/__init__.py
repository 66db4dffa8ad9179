"""What was shown and clicked, kept on the disk and collected for training."""
