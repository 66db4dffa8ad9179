"""The studio: a page for a person who wants to understand a card, and the few answers it asks for."""
