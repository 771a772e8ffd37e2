"""A suite as a project would have it, run by ``tests/test_suites.py`` in processes of its own."""
