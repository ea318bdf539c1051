"""Reports as lines of text for a terminal or a log. Pure; names from a run are escaped, so that none can move a cursor."""

from collections.abc import Iterable, Mapping, Sequence

from chaos.results import OracleVerdict, Trial, TrialResult, signature_of
from reports.aggregate import Group, OracleCounts, ScenarioCounts, Summary, count_oracles, count_scenarios
from reports.coverage import Coverage, count_by_fault, find_empty, find_unreached, list_aimed, measure_coverage, name_step
from reports.damage import render_damage
from reports.load import Run, RunConfig
from reports.repeat import TARGET, repeat_command, replay_command, shrink_command
from reports.words import describe_fault, describe_trial, escape

SHOWN = 10
NAMED = 5


def render_report(run: Run, summary: Summary, groups: Sequence[Group]) -> list[str]:
    """Everything a run has to say: what did not pass, what is missing, then the counts, the line SUMMARY last."""
    lines = [line for group in groups[:SHOWN] for line in render_group(group, run.config)]
    if len(groups) > SHOWN:
        lines.append(f"... and {len(groups) - SHOWN} more groups: {run.path}/results.jsonl has them all")
    lines += render_notes(run, summary)
    lines += render_scenarios(count_scenarios(run))
    lines += render_oracles(count_oracles(run))
    lines += render_damage(run.results)
    coverage = measure_coverage(run)
    lines += render_coverage(coverage) + render_matrix(run, coverage)
    return lines + render_summary(summary)


def render_scenarios(scenarios: Iterable[ScenarioCounts]) -> list[str]:
    """A line SCENARIO for each."""
    return [
        f"SCENARIO {escape(one.scenario)} "
        + _pairs({"trials": one.trials, "kills": one.kills, "freezes": one.freezes, "seconds": one.seconds})
        for one in scenarios
    ]


def render_oracles(oracles: Mapping[str, OracleCounts]) -> list[str]:
    """The line ORACLES."""
    counts = [f"{escape(name)}=pass:{one.passed},unknown:{one.unknown},fail:{one.fail}" for name, one in oracles.items()]
    return [f"ORACLES {' '.join(counts) or 'none'}"]


def render_coverage(coverage: Coverage) -> list[str]:
    """A line COVERAGE for each label that a trial can reach, and the lines ZERO that name what none did."""
    zeros = coverage.zeros
    lines = [
        f"COVERAGE {escape(one.label)} "
        + _pairs({"trials": one.trials, "live": one.live, "restored": one.restored, "quarantined": one.quarantined})
        for one in coverage.labels
        if one.label not in zeros.not_reachable
    ]
    named = {"trials": zeros.trials, "live": zeros.live, "restored": zeros.restored, "quarantined": zeros.quarantined}
    lines += [f"ZERO {count}: {_all(labels)}" for count, labels in named.items()]
    reasons: dict[str, list[str]] = {one.unreachable: [] for one in coverage.labels if one.label in zeros.not_reachable}
    for one in coverage.labels:
        if one.label in zeros.not_reachable:
            reasons[one.unreachable].append(one.label)
    return [*lines, *(f"ZERO not reachable, {escape(reason)}: {_all(names)}" for reason, names in reasons.items())]


def render_matrix(run: Run, coverage: Coverage) -> list[str]:
    """A line MATRIX for each fault, and the lines UNREACHED that name the steps at which none acted, and the cells that should have been
    reached."""
    names = {name_step(step) for one in run.scenarios for step in one.steps}
    lines = []
    for fault, one in count_by_fault(coverage.matrix).items():
        labels = ",".join(f"{escape(label)}:{count}" for label, count in one.labels.items())
        lines.append(f"MATRIX {escape(fault)} steps={one.steps}/{max(len(names), one.steps)} acted={one.trials} labels={labels or 'none'}")
    unreached = find_unreached(run, coverage.matrix)
    lines.append(f"UNREACHED steps={len(unreached)}/{len(names)}: {_first(unreached) or 'none'}")
    empty = [str(one) for one in find_empty(run)]
    return [*lines, f"UNREACHED cells={len(empty)}/{len(list_aimed(run))}: {_first(empty) or 'none'}"]


def render_summary(summary: Summary) -> list[str]:
    """The lines LABELS, FAULTS and SUMMARY."""
    counts = {
        "runs": summary.runs,
        "pass": summary.passed,
        "unknown": summary.unknown,
        "fail": summary.fail,
        "kills": summary.kills,
        "steps": summary.steps,
        "killed": summary.killed,
        "unreachable": summary.unreachable,
        "live": summary.live,
        "half_written": summary.half_written,
        "restored": summary.restored,
        "quarantined": summary.quarantined,
        "exec": summary.exec,
        "superseded": summary.superseded,
        "freezes": summary.freezes,
        "held": summary.held,
        "again": summary.again,
        "deeper": summary.deeper,
        "syscall": summary.syscall,
        "edits": summary.edits,
        "losses": summary.losses,
        "states": summary.states,
        "states_rate": summary.states_rate,
        "lost_calls": summary.lost_calls,
        "bound": summary.bound,
        "pruned": summary.pruned,
        "seconds": summary.seconds,
        "rate": summary.rate,
    }
    return [f"LABELS {_pairs(summary.labels)}", f"FAULTS {_pairs(summary.faults)}", f"SUMMARY {_pairs(counts)}"]


def render_notes(run: Run, summary: Summary) -> list[str]:
    """What the counts do not say: why steps are unreachable, which were left out, what else lowers the verdict."""
    lines = [f"NOTE {escape(reason)}" for reason in run.judgement.reasons] if run.judgement else []
    lines += [f"NOTE scenario {escape(name)} is {escape(why)}" for name, why in run.config.unavailable.items()]
    marks = sorted({one.kill_mark for one in run.scenarios} - {""})
    if marks:
        lines.append(f"NOTE kill mark in force: {', '.join(marks)}")
    if summary.reasons:
        lines.append(f"UNREACHABLE {', '.join(f'{count} {reason}' for reason, count in summary.reasons.items())}")
    if summary.pruned:
        why = (
            "another kill had left equal log, image and ledger, and nothing alive (simulated: the same processes), "
            "another power loss an equal disk"
        )
        lines.append(f"PRUNED {summary.pruned}: {why}")
    if summary.sampled:
        lines.append(f"SAMPLED {summary.sampled} freezes with a lock held are left to a soak (trial sets with `held`)")
    if run.audit:
        lines.append(f"AUDIT compared={len(run.audit)} different={sum(bool(one.difference) for one in run.audit)}")
    if summary.unkilled:
        lines.append(f"NOTE steps = killed + unreachable + {len(summary.unkilled)} not killed in this run: {_first(summary.unkilled)}")
    if not run.config.labels and run.config.mode != TARGET:
        lines.append("NOTE this run names no decision labels: those that no trial decided are not among the zeros")
    if run.judgement is None:
        lines.append("NOTE this run was cut short: it has no verdict")
    return lines


def render_group(group: Group, config: RunConfig) -> list[str]:
    """One group: its first trial in full, the others by name, and the command that repeats the first."""
    lines = [f"{group.verdict.upper()} {escape(group.scenario)} {describe_trial(group.first.trial)}"]
    lines += [f"  {line}" for line in render_trouble(group.first, group.oracle, config)]
    if group.others:
        names = [_name_other(other.trial, group.scenario) for other in group.others]
        lines.append(f"  likewise  {len(group.others)} more: {_first(names)}")
    return lines


def _name_other(trial: Trial, scenario: str) -> str:
    """A trial in words, with its scenario where that is another."""
    return describe_trial(trial) if trial.scenario == scenario else f"{escape(trial.scenario)} {describe_trial(trial)}"


def render_trouble(result: TrialResult, oracle: OracleVerdict | None, config: RunConfig) -> list[str]:
    """All there is to say of one trial that did not pass, judged by `oracle`: a name and a value on each line."""
    facts = [("reason", escape(result.reason)), ("signature", escape(str(signature_of(result))))]
    if oracle is not None:
        facts.append(("oracle", f"{escape(oracle.oracle)}{': ' if oracle.detail else ''}{escape(oracle.detail)}"))
        found = {"path": oracle.path, "expected": oracle.expected, "found": oracle.found, "event": oracle.event}
        facts += [(name, escape(value)) for name, value in found.items() if value]
    facts += [("unfired", describe_fault(fault)) for fault in result.faults if not fault.fired]
    if result.kept:
        replay = replay_command(config, result) or "none: a trial of this kind is run again with repeat"
        facts += [("kept", escape(result.kept)), ("replay", replay)]
        facts += [("shrink", command) for command in [shrink_command(config, result)] if command]
    facts.append(("repeat", repeat_command(config, result.trial)))
    return [f"{name:<9} {value}" for name, value in facts]


def _pairs(counts: Mapping[str, float]) -> str:
    return " ".join(f"{escape(name)}={count}" for name, count in counts.items())


def _all(names: Sequence[str]) -> str:
    return ", ".join(map(escape, names)) or "none"


def _first(names: Sequence[str]) -> str:
    shown = "; ".join(names[:NAMED])
    return f"{shown}; ..." if len(names) > NAMED else shown
