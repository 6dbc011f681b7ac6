"""The package version, which the build tool reads without importing the package."""

__version__ = "0.1.0"
