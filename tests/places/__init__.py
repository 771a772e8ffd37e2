"""Passes of one receiver, counted over all processes, while some of these are killed."""
