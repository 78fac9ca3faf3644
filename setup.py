"""The part of the build that pyproject.toml cannot express: the optional compiled decoder.

Without a C compiler, or with FOLDLOG_COMPILED=no, foldlog is built without it and decodes in
Python. Everything else about the package is in pyproject.toml.
"""

import os

from setuptools import Extension, setup

DECODER = Extension("foldlog.schemas._decoder", ["schemas/_decoder.c"], optional=True)

setup(
    script_name="setup.py",  # otherwise this file becomes a module of the package `foldlog`
    ext_modules=[] if os.environ.get("FOLDLOG_COMPILED") == "no" else [DECODER],
)
