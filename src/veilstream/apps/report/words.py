"""The report in words: the verdict, the guarantee levels, the glossary, and the card of data and model."""

from veilstream.apps.report.content import Content, Spot, number
from veilstream.artefact import Artefact
from veilstream.audit.source import Recorded
from veilstream.control.limit_check import TOLERANCE
from veilstream.data.card import THIN_ROW, describe
from veilstream.data.cost import TABLE
from veilstream.data.points import described
from veilstream.solvers.solution import Level
from veilstream.units import counted, format_duration, off

LEVELS = {
    Level.PROVED: "holds for every adversary and every other policy, if the fitted chain is the truth",
    Level.COMPUTED: "no sampling behind it; exact for the fitted chain, to rounding. The leakage of a policy "
    "that forgets old releases is an upper bound on what someone who keeps them all learns",
    Level.ESTIMATED: "by simulation; the ± is a 95 % interval",
    Level.HELD_OUT: "measured on the person's own later data, which nothing was fitted to; 95 % intervals over whole "
    "traces or weeks; bits are an upper bound whatever the law of that data, the chain is not believed",
    Level.MODEL_ONLY: "true of the fitted chain, but the data behind it is too little to say it of the person",
}
GLOSSARY = {
    "recorded data": "the readings that the chain was fitted to.",
    "later data": "readings after those, which nothing was fitted to: the latest third when the model was made, and "
    "whatever came since.",
    "kept, not shown to be kept, broken": "of a limit on later data. Broken: the whole 95 % interval lies above it. "
    f"Kept: the interval ends at most {100 * TOLERANCE:.0f} % above it. Else the data does not decide.",
    "bit": "the answer to one yes-or-no question whose answers are equally likely.",
    "leakage": "how much the releases reveal, on average per step, to someone who has seen all earlier ones and knows "
    "the chain and the policy. 0: nothing. The entropy rate: everything.",
    "entropy rate": "what publishing the truth itself would reveal per step.",
    "distortion": "how far a release is from the truth, on average; the price paid for privacy.",
    "policy": "the rule that draws each release, from the true state and from what was released before.",
    "chain": "the Markov model of how the true state moves from step to step, fitted to the data.",
    "posterior": "what the adversary believes about the true state after seeing the releases up to now.",
    "certified band": "between the policies found and the line that no policy can be below.",
    "channel": "the probability of each release given the true state.",
    "effective sample": "how many independent visits the recorded steps are worth, since neighbours resemble each "
    "other.",
}
MADE_OF = {
    "squared": "the square of the distance",
    "zero-one": "% of steps at which a release lies at another state than the true one",
    TABLE: "a table of what each confusion costs",
}
UNSAID = (
    "Every figure that is not said to be of later data speaks of the fitted chain. Data that moves in ways the chain "
    "does not know (days of the week, for one) can reveal more: veil audit measures that on real data.",
    "Leakage is a mean over time. Something rare can stand out even when the mean is small.",
    "When something is released is public here; only what is released is hidden.",
)


def verdict(content: Content) -> tuple[str, list[str]]:
    """A headline, and what later data and feedback say; the limits stand before it, the figures below."""
    later = [] if content.later is None else [content.later.words(content.unit)]
    return headline(content, content.own), [*later, *_feedback(content)]


def headline(content: Content, spot: Spot) -> str:
    """How often an adversary is right, the error of releases, and their relative leakage."""
    where, far = "" if spot.felt is None else "on your recorded data ", off(f"{spot.error:.3g}", content.unit)
    share = f"{100 * spot.less:.1f}" if spot.less > 0.99 else f"{100 * spot.less:.0f}"
    there = spot.felt is None or (spot.point.record is not None and spot.point.record.truth is not None)
    told = f"{share} % less than the truth would{'' if there else ' in the long run'}."
    told = "next to nothing." if spot.less > 1 - 5e-4 else told
    return f"Under the fitted chain {spot.guess.words(content.thing)}; {where}releases have {far} and reveal {told}"


def short(content: Content, spot: Spot) -> str:
    """Error and leakage beside the slider."""
    record = spot.point.record
    bits = spot.point.leakage if record is None else max(record.bits, 0.0)
    far = f"{spot.error:.3g} {'% of steps' if content.unit == '%' else content.unit}".strip()
    return f"error {far}, {number(bits)} bits per step"


def _feedback(content: Content) -> list[str]:
    """How a limit on the mean is kept by public moves, and what is promised of it."""
    rule, record = content.rule, content.own.point.record
    if rule is None:
        return []
    happens, promised = rule.words(content.unit, content.artefact.recording.stretch(rule.every))
    limit = f"A limit of {f'{rule.limit:.3g} {content.unit}'.strip()} on the mean is followed by feedback"
    moved = "" if record is None else f" On your recorded data it moved {record.moves:.0f} times."
    return [f"{limit}: {happens}.{moved}", f"Promised: {promised} ({Level.PROVED}, the chain is not believed)."]


# --- what lies behind the figures, in counts ----------------------------------------------------------------


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
