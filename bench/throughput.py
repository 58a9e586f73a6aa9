# SPDX-License-Identifier: Apache-2.0
"""NDR, PDR and MRR by FD.io's MLRsearch (draft-ietf-bmwg-mlrsearch), of anything that can measure a trial."""

from dataclasses import dataclass

from MLRsearch import AbstractMeasurer, Config, MeasurementResult, MultipleLossRatioSearch, SearchGoal
from MLRsearch.goal_result import GoalResult

PDR_LOSS_RATIO = 0.005


@dataclass(frozen=True)
class Search:
    """How long is searched, and how narrowly. A load is good if at least half of its trials' time had no more loss than
    the goal has: on a shared machine another program may take a processor during a trial."""

    trial_seconds: float = 0.2
    first_trial_seconds: float = 0.1
    duration_sum: float = 0.6
    relative_width: float = 0.02
    exceed_ratio: float = 0.5
    seconds: float = 60.0
    least_load: float = 1e3
    greatest_load: float = 4e7
    mrr_trials: int = 5
    searches: int = 3

    def goal(self, loss_ratio):
        return SearchGoal(
            loss_ratio=loss_ratio,
            exceed_ratio=self.exceed_ratio,
            relative_width=self.relative_width,
            initial_trial_duration=self.first_trial_seconds,
            final_trial_duration=self.trial_seconds,
            duration_sum=self.duration_sum,
            preceding_targets=2,
            expansion_coefficient=2,
            fail_fast=False,
        )


class Measurer(AbstractMeasurer):
    """`trial(seconds, load)` gives an Outcome; loads are packets a second in all directions together."""

    def __init__(self, trial):
        self.trial, self.trials = trial, 0

    def measure(self, intended_duration, intended_load):
        self.trials += 1
        outcome = self.trial(intended_duration, intended_load)
        return MeasurementResult(
            intended_duration=intended_duration,
            intended_load=intended_load,
            intended_count=outcome.total("intended"),
            offered_count=outcome.total("offered"),
            forwarding_count=outcome.total("received"),
            offered_duration=outcome.seconds,
        )


def search(trial, how):
    """{"ndr_pps", "pdr_pps", "late", "trials"}. A rate is None where no load is known to be good enough; `late`: the
    time was over, and what was found until then is what is given."""
    goals = {"ndr_pps": how.goal(0.0), "pdr_pps": how.goal(PDR_LOSS_RATIO)}
    measurer = Measurer(trial)
    config = Config(
        goals=list(goals.values()),
        min_load=how.least_load,
        max_load=how.greatest_load,
        search_duration_max=how.seconds,
        warmup_duration=how.first_trial_seconds,
    )
    searching = MultipleLossRatioSearch(config=config)
    late = False
    try:
        searching.search(measurer=measurer, debug=lambda _: None)
    except RuntimeError:
        late = True
    found = {name: lower_bound(searching, goal) for name, goal in goals.items()}
    return found | {"late": late, "trials": measurer.trials}


def searches(trial, how):
    """As `search`, of several searches the middle of each rate, and under "..._searches" what each of them found: a
    loss that has nothing to do with the load makes a search end elsewhere."""
    return middle_search([search(trial, how) for _ in range(how.searches)])


def middle_search(found):
    middle = {"late": any(each["late"] for each in found), "trials": sum(each["trials"] for each in found)}
    for rate in ("ndr_pps", "pdr_pps"):
        rates = sorted((each[rate] for each in found), key=lambda each: each or 0.0)
        middle |= {rate: rates[len(rates) // 2], f"{rate}_searches": rates}
    return middle


def lower_bound(searching, goal):
    """Packets a second: the forwarded rate at the greatest load that is known to be good; None if none is."""
    target = searching.scaling.goal_to_final_target[goal]
    throughput = GoalResult.from_bounds(searching.database.get_relevant_bounds(target=target)).conditional_throughput
    return None if throughput is None else float(throughput)


def received_rate(outcome):
    """Packets a second that came through while the generator sent; a stall of the generator is part of the time."""
    return outcome.total("received") / (outcome.seconds + outcome.stalled)
