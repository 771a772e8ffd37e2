"""Two versions of a project at once: one receiver under two names, or with two kinds of key."""
