"""One file for each change of the tables, in the order of their numbers."""
