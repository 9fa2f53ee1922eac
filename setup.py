"""What setup.cfg cannot say: the description that a package index shows."""

import re
from pathlib import Path

from setuptools import setup

readme = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
# Links and pictures of README lie in the repository, which a package index does not have, and the
# repository has no public address yet that they could be turned into: their words stay.
readme = re.sub(r"(?m)^!\[([^]]*)\]\((?!https?:)[^)]*\)$", r"*\1.*", readme)
readme = re.sub(r"\[([^]]+)\]\((?!https?:)[^)]*\)", r"\1", readme)

setup(long_description=readme)
