"""Checks that take too long for the suite: `./run accept NAME` runs `test_NAME.py`."""
