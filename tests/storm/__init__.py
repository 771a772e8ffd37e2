"""Eight real processes save, move and delete the same groups' items at once."""
