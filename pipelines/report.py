"""`dpngram report`: the page of a finished release, made again."""

from collections.abc import Sequence

from apache_beam.io.filesystems import FileSystems

from dpngram.pipelines.io.release_files import REPORT, iterate_rows, read_manifest
from dpngram.pipelines.launch.flags import OneLineParser, print_error
from dpngram.pipelines.pages.release_page import render_report
from dpngram.transforms.whole_files import write_whole

__all__ = ["run", "write_report"]


def run(argv: Sequence[str]) -> int:
    parser = OneLineParser(prog="dpngram report", description="Make report.html again from a finished release.")
    parser.add_argument("directory", help="the output directory of dpngram extract")
    flags = parser.parse_args(argv)
    try:
        path = write_report(flags.directory)
    except Exception as error:  # these files may be anything, and broken in any way
        return print_error(parser.prog, f"no finished release in {flags.directory!r} ({type(error).__name__}).", 1)
    print(path)
    return 0


def write_report(directory: str) -> str:
    """Reads a finished release and writes its page beside it."""
    manifest = read_manifest(directory)
    path = str(FileSystems.join(directory, REPORT))
    write_whole(path, render_report(manifest, iterate_rows(directory, manifest)).encode())
    return path
