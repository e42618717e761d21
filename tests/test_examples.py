"""Every example runs, as its head says."""

import json
import runpy
import sys
from pathlib import Path

import pyarrow.parquet as pq

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def test_join_public_table(posts, tmp_path, monkeypatch):
    (tmp_path / "public.csv").write_text("phrase,topic\nsee you,greeting\nnever written,none\n")
    monkeypatch.setattr(sys, "argv", ["x", str(posts), str(tmp_path / "public.csv"), str(tmp_path / "released")])
    monkeypatch.setattr(sys, "path", [*sys.path])
    runpy.run_path(str(EXAMPLES / "join_public_table.py"), run_name="__main__")
    rows = [row for path in tmp_path.glob("released*.parquet") for row in pq.read_table(path).to_pylist()]
    assert [(row["phrase"], row["topic"]) for row in rows] == [("see you", "greeting")]
    assert rows[0]["weight"] > 10


def test_parts(posts, tmp_path, capsys, monkeypatch):
    """Each composite alone: a histogram of words, and phrases of a vocabulary that was known before."""
    monkeypatch.setattr(sys, "argv", ["x", str(posts), str(tmp_path / "noise.key")])
    runpy.run_path(str(EXAMPLES / "parts.py"), run_name="__main__")
    rows = capsys.readouterr().out.splitlines()
    for tokens in (["see"], ["you"], ["tomorrow"], ["see", "you"], ["you", "tomorrow"]):
        assert any(row.startswith(f"Ngram(n={len(tokens)}, tokens={tokens}, weight=") for row in rows), tokens
    assert not any("'thank', 'thank'" in row for row in rows)


def test_notebook():
    """Its code, cell by cell; the last one is a table in which plus releases more than paper."""
    cells = json.loads((EXAMPLES / "messages.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] or "import" in "".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    names = {}
    for source in code:
        exec(source, names)  # noqa: S102
    assert len(names["released"]) > 1.3 * len(names["paper"]) > 500
    bars = ["".join(output.get("data", {}).get("text/plain", "")) for output in cells[5]["outputs"]]
    assert any(line.endswith("done") for line in bars)
    assert not names["released"]["phrase"].str.contains(r"\d{5}").any()
