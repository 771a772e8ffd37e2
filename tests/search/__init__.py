"""Every schedule: the real Lua scripts on a real server as the transitions of a search."""
