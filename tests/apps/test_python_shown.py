"""What a notebook shows: short and escaped, figures, a bar; and nothing heavy is loaded before."""

import subprocess
import sys

import pytest

import veilstream as vs
from pythonkit import meter, pd
from veilstream import shown


def test_everything_is_short_and_escaped(solution):
    home = vs.fit(pd.concat([meter(60).assign(stream="<b>ann</b>")]), n_states=3)
    things = [home, home.artefact, solution, solution.artefact, vs.curve("builtin:binary", weights=[1.0, 2.0])]
    for thing in things:
        assert len(repr(thing)) < 130 and "\n" not in repr(thing)
        page = thing._repr_html_()
        assert page.startswith("<div>") and "<b>ann" not in page and len(page) < 6000
    assert "&lt;b&gt;ann" in home._repr_html_()


@pytest.mark.slow
def test_plots_are_figures_that_show_themselves(solution):
    figures = [
        vs.fit(meter(), n_states=3).plot(),
        solution.plot(),
        vs.curve("builtin:binary", weights=[1.0, 4.0]).plot(),
    ]
    for figure in figures:
        assert figure._repr_png_().startswith(b"\x89PNG")


def test_without_matplotlib_plot_says_what_to_install(monkeypatch, solution):
    for name in [m for m in sys.modules if m.startswith(("matplotlib", "veilstream.apps.report"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(vs.InputError, match=r"`plot` needs matplotlib; .* pip install 'veilstream\[plot\]'"):
        solution.plot()


def test_progress_is_silent_outside_a_notebook_and_goes_to_whom_it_is_told(capsys):
    told = []
    vs.solve("builtin:binary", weight=1.0)
    vs.solve("builtin:binary", weight=1.0, progress=lambda done, what: told.append(done))
    assert told and capsys.readouterr() == ("", "")


def test_a_bar_in_a_notebook_comes_after_a_second_and_is_cleared(monkeypatch):
    drawn = []

    class Handle:
        def update(self, bar):
            drawn.append(bar._repr_html_())

    class Display:
        @staticmethod
        def display(bar, display_id):
            drawn.append(bar._repr_html_())
            return Handle()

    clock = iter([0.0, 0.5, 1.5, 1.6, 2.0])
    monkeypatch.setitem(sys.modules, "IPython.display", Display)
    monkeypatch.setattr(shown.time, "monotonic", lambda: next(clock))
    with shown.notebook_bar("<solving>") as tell:
        for done in (0.1, 0.3, 0.4, 0.6):
            tell(done, "sweeps")
    assert [("0.300" in d, "0.600" in d) for d in drawn] == [(True, False), (False, True), (False, False)]
    assert drawn[0].startswith("&lt;solving&gt;") and drawn[-1] == ""


def test_importing_the_package_loads_nothing_heavy():
    code = "import veilstream as vs, sys; vs.solve; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"sklearn", "polars", "pandas", "matplotlib", "IPython", "typer"} & set(loaded)
