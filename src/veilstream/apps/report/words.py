"""The report in words: the verdict, the guarantee levels, the glossary."""

from __future__ import annotations

from veilstream.apps.report.content import Content, number
from veilstream.control.limit_check import TOLERANCE
from veilstream.solvers.solution import Level
from veilstream.units import off

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
UNSAID = (
    "Every figure that is not said to be of later data speaks of the fitted chain. Data that moves in ways the chain "
    "does not know (days of the week, for one) can reveal more: veil audit measures that on real data.",
    "Leakage is a mean over time. Something rare can stand out even when the mean is small.",
    "When something is released is public here; only what is released is hidden.",
)


def verdict(content: Content) -> tuple[str, list[str]]:
    """A headline, and the sentences that back it, each with its guarantee level; the limits stand before it."""
    later = [] if content.later is None else [content.later.words(content.unit)]
    return headline(content), [*later, *_revealed(content), *_feedback(content), *_against(content)]


def headline(content: Content) -> str:
    """The first sentence: how often an adversary is right, the error of releases, and their relative leakage."""
    own, point = content.own, content.own.point
    far = off(f"{point.distortion if own.felt is None else own.felt:.3g}", content.unit)
    where = "" if own.felt is None else "on your recorded data "
    if own.less > 1 - 5e-4:
        told = f"{where}releases have {far} and reveal next to nothing."
    else:
        there = own.record is not None and own.record.truth is not None
        share = f"{100 * own.less:.1f}" if own.less > 0.99 else f"{100 * own.less:.0f}"
        long = "" if there or own.felt is None else " in the long run"
        told = f"{where}releases have {far} and reveal {share} % less than the truth would{long}."
    return f"Under the fitted chain {own.example.guess.words(content.thing)}; {told}"


def _revealed(content: Content) -> list[str]:
    """Bits per step: on the recorded data where there is some, and in the long run of the chain."""
    point, record, truth = content.own.point, content.own.record, content.artefact.chain.entropy_rate
    spread = f" ± {1.96 * point.leakage_se:.4f}" if point.leakage_se else ""
    each = f"ach {content.period} reveals {number(point.leakage)}{spread} bits; the truth itself would reveal "
    if record is None:
        return [f"E{each}{number(truth)} ({point.level})."]
    rest = "" if record.truth is None else f"; the truth would reveal {number(record.truth)} there"
    bits = f"{number(max(record.bits, 0.0))} ± {1.96 * record.bits_se:.4f} bits"
    return [
        f"On your recorded data, starts and gaps included, each {content.period} reveals {bits}{rest} "
        f"({content.record_level}).",
        f"In the long run of the fitted chain{'' if content.rule is None else ', on its first rung,'} releases have "
        f"{off(f'{point.distortion:.3g}', content.unit)} and e{each}{number(truth)} ({point.level}).",
    ]


def _feedback(content: Content) -> list[str]:
    """How a limit on the mean is kept by public moves, and what is promised of it."""
    rule, record = content.rule, content.own.record
    if rule is None:
        return []
    happens, promised = rule.words(content.unit, content.artefact.recording.stretch(rule.every))
    limit = f"A limit of {f'{rule.limit:.3g} {content.unit}'.strip()} on the mean is followed by feedback"
    moved = "" if record is None else f" On your recorded data it moved {record.moves:.0f} times."
    return [f"{limit}: {happens}.{moved}", f"Promised: {promised} ({Level.PROVED}, the chain is not believed)."]


def _against(content: Content) -> list[str]:
    """Against what is possible at all, against no release, against planar Laplace noise."""
    own, point, guess = content.own, content.own.point, content.own.example.guess
    reveals = point.leakage > 5e-4 * max(content.artefact.chain.entropy_rate, 1e-9)
    found = []
    if own.low > 0:
        found.append(
            f"No policy this accurate in the long run can reveal less than {number(own.low)} bits ({Level.PROVED}), "
            f"so at most {100 * (point.leakage - own.low) / point.leakage:.1f} % of this leakage could still be "
            "avoided."
        )
    elif reveals:
        found.append("No lower bound above zero was proved at this accuracy; a longer search may find one.")
    found.append(
        f"The adversary knows your habits and this policy: right in {100 * guess.right:.0f} ± "
        f"{196 * guess.right_se:.0f} % of steps drawn from the chain; without any release, by always guessing "
        f"the commonest, in {100 * guess.blind:.0f} % ({Level.ESTIMATED})."
    )
    laplace = next((b for b in own.rivals if b.label.startswith("planar") and b.leakage), None)
    if laplace is not None and laplace.leakage and reveals:
        found.append(
            f"Planar Laplace noise, as accurate in the long run, would reveal {number(laplace.leakage)} ± "
            f"{1.96 * laplace.leakage_se:.4f} bits, {laplace.leakage / point.leakage:.1f} times as much "
            f"({laplace.level})."
        )
    return found
