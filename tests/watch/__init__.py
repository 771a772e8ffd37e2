"""``recheck_run --watch``: what wakes it, what it survives, and what it leaves to whom."""
