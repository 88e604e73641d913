"""The data and model card: what lies behind the figures, in counts."""

from __future__ import annotations

from veilstream.artefact import Artefact
from veilstream.audit.source import Recorded
from veilstream.data.card import THIN_ROW, describe
from veilstream.data.cost import TABLE
from veilstream.data.points import described
from veilstream.units import counted, format_duration

MADE_OF = {
    "squared": "the square of the distance",
    "zero-one": "% of steps at which a release lies at another state than the true one",
    TABLE: "a table of what each confusion costs",
}


def data_card(artefact: Artefact, data: Recorded) -> list[tuple[str, str]]:
    """The recorded data, seen through the policy's states; nothing where none was given."""
    if data.sequences is None:
        return []
    card, steps = describe(artefact.chain, data.sequences), sum(map(len, data.sequences))
    rows = [
        ("recorded", f"{data.readings:,} readings in {counted(data.traces, 'trace')}"),
        ("steps", f"{steps:,} in {counted(len(data.sequences), 'run')}; {card.moves:,} of them move"),
        ("effective sample", f"{card.effective_sample:,.0f} independent visits"),
        ("stays put", f"{100 * card.self_transition:.0f} % of steps"),
        ("data against chain", f"{card.drift:.2f} total variation between visits and the chain's long-run law"),
    ]
    if card.thin_rows:
        rows.append(
            ("thin rows", f"{counted(card.thin_rows, 'state')} with fewer than {THIN_ROW} transitions behind them")
        )
    return rows


def chain_card(artefact: Artefact) -> list[tuple[str, str]]:
    """The chain and the constraint."""
    chain, states = artefact.chain, artefact.states
    kind = states.kind if states is not None else "symbols"
    rows = [
        ("states", f"{chain.n_symbols} {kind}"),
        ("chain", f"order {chain.order}, entropy rate {chain.entropy_rate:.4f} bits per step"),
    ]
    if artefact.points is not None:
        rows.append(("releases", f"{len(artefact.points)} {described(artefact.points)}"))
    if artefact.measure in MADE_OF:
        rows.append(("distortion", MADE_OF[artefact.measure]))
    if artefact.period_s:
        rows.append(("one step", format_duration(artefact.period_s)))
    if chain.counts is not None:
        counts = chain.counts.sum(1)
        rows.append(
            ("fitted on", f"{counts.sum():,.0f} transitions; per state {counts.min():,.0f} to {counts.max():,.0f}")
        )
    if artefact.problem is not None:
        rows.append(("constraint", artefact.problem.constraint.told(artefact.unit)))
    if artefact.policy is not None and (rule := artefact.policy.moves_by) is not None:
        happens, promised = rule.words(artefact.unit, artefact.recording.stretch(rule.every))
        rows += [("kept by feedback", happens), ("promised", promised)]
    rows += [("note", warning) for warning in chain.warnings]
    return rows
