"""What a valid card is. Knows no learning."""
