"""What the repository needs to look after itself; no part of the installed product."""
