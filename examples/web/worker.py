"""Runs a worker as a separate process until SIGTERM or Ctrl-C."""

import logging
import sys

from agent import shop

import foldlog

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    sys.exit(foldlog.run_worker([shop]))
