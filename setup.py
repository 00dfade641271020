"""Builds the one compiled module; everything else about the build is in pyproject.toml.

`optional=True`: where there is no C compiler the install goes on, and the same file runs uncompiled.
"""

from Cython.Build import cythonize
from setuptools import Extension, setup

setup(
    ext_modules=cythonize(
        [Extension("brokerweave.mqtt.frames", ["src/brokerweave/mqtt/frames.py"], optional=True)],
        language_level=3,
        compiler_directives={"boundscheck": True, "wraparound": False},
    )
)
