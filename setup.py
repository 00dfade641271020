"""Builds the one compiled module; everything else about the build is in pyproject.toml.

`optional`: where there is no C compiler the install goes on, and the same file runs uncompiled. It is set on
what `cythonize` returns, since `cythonize` drops it from what it is given.
"""

from Cython.Build import cythonize
from setuptools import setup

(frames,) = cythonize(
    "src/brokerweave/mqtt/frames.py",
    build_dir="build",  # outside src, or the C file is installed, too
    language_level=3,
    compiler_directives={"boundscheck": True, "wraparound": False},
)
frames.optional = True

setup(ext_modules=[frames])
