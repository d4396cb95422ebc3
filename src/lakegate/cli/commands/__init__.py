"""One module for each command; each is loaded only when its command is used."""
