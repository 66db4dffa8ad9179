"""How good a card is, how sure we are, and who else could have picked it."""
