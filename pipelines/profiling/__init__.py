"""What a user's own file holds, guessed from its names and its content, for `hpd init`."""
