"""Benchmarks: `./run bench NAME --json PATH`.

Each prints a table and writes one JSON object (`harness`). What is compared is measured in turns in one run,
so that a machine that gets slower or busier does so for all sides; what is reported is the median of the
ratios of each turn, not the ratio of two medians. `registry` lists the benchmarks.
"""
