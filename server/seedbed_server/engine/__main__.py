"""`python -m seedbed_server.engine` is `python -m seedbed_server.engine.serve`.

multiprocessing's spawn imports the main module again in each child, but never one called `__main__`.
"""

import runpy

if __name__ == "__main__":
    runpy.run_module("seedbed_server.engine.serve", run_name="__main__", alter_sys=True)
