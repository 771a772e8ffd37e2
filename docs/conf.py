"""Sphinx: Markdown through MyST, the theme furo."""

project = "django-recheck"
author = "django-recheck contributors"
copyright = "2026, django-recheck contributors"
extensions = ["myst_parser"]
html_theme = "furo"
exclude_patterns = ["_build"]
myst_heading_anchors = 3
