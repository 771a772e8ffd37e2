"""What all of it costs, beside what people would use instead: ``python -m tests.benchmarks``."""
