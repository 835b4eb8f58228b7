"""Generated from `proto/seedbed/v1`; `./run proto` writes it again."""
