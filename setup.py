"""Builds the compiled modules; everything else about the build is in pyproject.toml.

`optional`: where there is no C compiler the install goes on, and the same files run uncompiled. It is set on
what `cythonize` returns, since `cythonize` drops it from what it is given.
"""

from Cython.Build import cythonize
from setuptools import setup

modules = cythonize(
    ["src/brokerweave/mqtt/frames.py", "src/brokerweave/edgelog/columns.py"],
    build_dir="build",  # outside src, or the C files are installed, too
    language_level=3,
    compiler_directives={"boundscheck": True, "wraparound": False},
)
for module in modules:
    module.optional = True

setup(ext_modules=modules)
