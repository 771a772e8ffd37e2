"""Schedules through the real client: one round trip at a time, in an order drawn from a seed."""
