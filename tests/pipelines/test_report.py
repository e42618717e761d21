"""report.html: one page, from the release alone, that works in a browser with and without scripts."""

from dpngram.pipelines.cli import main


def test_made_again_from_the_release_alone(release, capsys):
    before = (release / "report.html").read_bytes()
    (release / "report.html").unlink()
    assert main(["report", str(release)]) == 0
    assert (release / "report.html").read_bytes() == before
    assert capsys.readouterr().out.strip().endswith("report.html")
    assert main(["report", str(release.parent)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
