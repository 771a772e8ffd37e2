"""What a person sees: the shop's site in a real Chromium, with processes that hold its locks."""
