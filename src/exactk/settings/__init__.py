"""The one way settings are declared, read, checked and listed."""
