"""`dpngram demo`."""

from dpngram.pipelines.cli import main


def test_demo(tmp_path, capsys):
    assert main(["demo", "--output", str(tmp_path / "demo")]) == 0
    out = capsys.readouterr().out
    assert "thank you very much" in out
    assert "0 of them hold anybody's number" in out
    assert (tmp_path / "demo" / "release" / "manifest.json").exists()
