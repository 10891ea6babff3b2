"""What xpolicy costs, measured. ``python -m benchmarks`` prints the table."""
