"""What the wheel and the sdist hold: all that belongs into them, and nothing else.

    python tests/release/contents.py dist

The wheel holds every file of the package that git tracks; the sdist, the same and what builds the wheel. So a new file
cannot be forgotten in `setup.cfg`.
"""

import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).parents[2]
_INSTALLED = "lazyprompt/"
_BUILDS = ("LICENSE", "README.md", "pyproject.toml", "setup.cfg")
# What builders add: metadata of their own, whatever it is called.
_MADE = (".dist-info/", ".egg-info/", "PKG-INFO", "setup.cfg")


def difference(held: set[str], wanted: set[str], name: str) -> list[str]:
    """What is wrong with the files of an archive, a line each."""
    added = sorted(each for each in held - wanted if not any(made in each for made in _MADE))
    return [
        *(f"{name} lacks {each}" for each in sorted(wanted - held)),
        *(f"{name} holds {each}, which git does not know" for each in added),
    ]


def main() -> None:
    """Compare both with what git knows."""
    dist = Path(sys.argv[1])
    (wheel,), (sdist,) = (sorted(dist.glob(f"lazyprompt-*{end}")) for end in (".whl", ".tar.gz"))
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S607 - git
    known = {each for each in listed.stdout.split("\0") if each}
    with ZipFile(wheel) as archive:
        in_wheel = {each for each in archive.namelist() if not each.endswith("/")}
    with tarfile.open(sdist) as archive:
        in_sdist = {each.name.partition("/")[2] for each in archive.getmembers() if each.isfile()}
    wrong = [
        *difference(in_wheel, {each for each in known if each.startswith(_INSTALLED)}, wheel.name),
        *difference(in_sdist, {each for each in known if each.startswith((_INSTALLED, *_BUILDS))}, sdist.name),
    ]
    if not any(each.endswith("/licenses/LICENSE") for each in in_wheel):
        wrong.append(f"{wheel.name} lacks the licence")
    if wrong:
        sys.exit("\n".join(wrong))
    sys.stdout.write(f"{wheel.name}: {len(in_wheel)} files, {sdist.name}: {len(in_sdist)}, as git knows them\n")


if __name__ == "__main__":
    main()
