"""The notebooks of `examples/` run from top to bottom."""

import pytest

from rooms import ROOT

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def text_of(output):
    return "".join(output.get("text", "")) + str(output.get("data", {}))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_every_notebook_runs_and_says_nothing_on_standard_error(path, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    book = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(book, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in book.cells for output in cell.get("outputs", ())]
    assert not [text_of(o) for o in outputs if o.get("name") == "stderr"]
    pictures = [o for o in outputs if "image/png" in o.get("data", {})]
    assert len(pictures) >= 1  # plots show themselves


def test_there_are_three_notebooks_without_a_path_of_somebodys_machine():
    assert [p.stem for p in NOTEBOOKS] == ["my_gps_traces", "my_meter", "my_own_mechanism"]
    for path in NOTEBOOKS:
        text = path.read_text()
        assert "/tmp/" not in text and "/home/" not in text and "/work/" not in text
