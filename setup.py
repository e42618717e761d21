"""Package metadata. The folders are mapped so that exactly one top-level name, dpngram, is installed."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
ROOMS = ("accounting", "transforms", "pipelines")
README = (HERE / "README.md").read_text(encoding="utf-8")
(VERSION,) = re.findall(r'^__version__ = "(.+)"$', (HERE / "package/__init__.py").read_text(encoding="utf-8"), re.M)

setup(
    name="dpngram",
    version=VERSION,
    description="Release n-grams from private text under user-level differential privacy, on Apache Beam.",
    # Links to files of the repository lead nowhere on the page of an index: their words stay.
    long_description=re.sub(r"\[([^]]+)\]\((?!https?:)[^)]+\)", r"\1", README),
    long_description_content_type="text/markdown",
    author="The dpngram maintainers",
    license_expression="Apache-2.0",
    license_files=["LICENSE"],
    keywords=["differential privacy", "n-gram", "vocabulary", "private text", "apache beam", "nlp"],
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Environment :: Console",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Topic :: Scientific/Engineering :: Information Analysis",
        "Topic :: Security",
        "Topic :: Text Processing :: Linguistic",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Typing :: Typed",
    ],
    python_requires=">=3.10,<3.15",
    packages=[
        "dpngram",
        *(f"dpngram.{package}" for room in ROOMS for package in find_packages(include=[room, f"{room}.*"])),
    ],
    package_dir={"dpngram": "package"} | {f"dpngram.{room}": room for room in ROOMS},
    package_data={"dpngram": ["py.typed"]} | {f"dpngram.{room}": ["py.typed"] for room in ROOMS},
    install_requires=[
        "apache-beam>=2.62,<3",
        "numpy>=1.26,<3",
        "scipy>=1.11.1,<2",
        "pyarrow>=16",
        "cryptography>=42",
        "fastavro>=1.8",
        "typing_extensions>=4.4",
    ],
    extras_require={
        "test": [
            "pytest>=8",
            "pytest-xdist>=3.5",
            "hypothesis>=6",
            "mpmath>=1.3",
            "dp-accounting>=0.4.4",
            "setuptools>=77",
            "wheel",
            "tokenizers>=0.15",
            "apache-beam[yaml,gcp]",  # for the examples, and for Dataflow's jobs
            "google-cloud-secret-manager>=2,<3",
            "pandas>=2",
            "markdown-it-py>=3",  # for the site of the documentation
            "confluent-kafka>=2.4",
        ],
        "docs": ["markdown-it-py>=3"],
        # Secrets of the noise key: Beam's own extra has this package in later versions only.
        "gcp": ["apache-beam[gcp]>=2.62,<3", "google-cloud-secret-manager>=2,<3"],
        "hf": ["tokenizers>=0.15"],
        "kafka": ["confluent-kafka>=2.4"],
        "release": ["build", "twine>=6.1"],
        "lint": ["ruff>=0.9", "mypy>=1.14", "scipy-stubs"],
    },
    entry_points={"console_scripts": ["dpngram=dpngram.pipelines.cli:main"]},
)
