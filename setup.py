"""Builds the compiled modules; everything else about the build is in pyproject.toml.

A module is compiled where a `.pxd` with its C types lies beside it. `optional`: where there is no C compiler
the install goes on, and the same files run uncompiled. It is set on what `cythonize` returns, since
`cythonize` drops it from what it is given.
"""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import setup

modules = cythonize(
    [str(types.with_suffix(".py")) for types in sorted(Path("src").rglob("*.pxd"))],
    include_path=["src"],  # where one module's types name those of another
    build_dir="build",  # outside src, or the C files are installed, too
    language_level=3,
    compiler_directives={"boundscheck": True, "wraparound": False},
)
for module in modules:
    module.optional = True

setup(ext_modules=modules)
