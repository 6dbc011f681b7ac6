"""The specification lies beside the repository only where the project is built."""

from support.paths import SPECIFICATIONS

collect_ignore = [] if SPECIFICATIONS.is_dir() else ["test_specification.py"]
