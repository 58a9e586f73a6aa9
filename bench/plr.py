# SPDX-License-Identifier: Apache-2.0
"""PLRsearch (draft-vpolak-bmwg-plrsearch): the load at which a gateway loses one packet in ten million in the long run.

No single trial can show such a loss. The search fits two functions of load to the losses of many trials, most of them
near the load that it looks for, and states the mean and the standard deviation of that critical load."""

import bisect
import math
from dataclasses import dataclass

TARGET = 1e-7
# Candidates for a function's two parameters: the load of which half is lost on top, and how gradually loss begins.
CENTERS, SPREADS = 161, 25
LEAST_CENTER, GREATEST_CENTER = 0.3, 1.1
LEAST_SPREAD, GREATEST_SPREAD = 1e-4, 0.3
FAR = 30.0


@dataclass(frozen=True)
class Soak:
    """Trials become longer by `trial_growth` seconds each, until `seconds` are over."""

    seconds: float = 60.0
    first_trial_seconds: float = 0.2
    trial_growth: float = 0.02


def log_stretch(x):
    """The logarithm of ln(1 + e^x), whose slope is the logistic function."""
    if x < -FAR:
        return x
    return math.log(x) if x > FAR else math.log(math.log1p(math.exp(x)))


def log_erf(x):
    """The logarithm of the integral of the normal distribution function."""
    if x < -6:
        return -x * x / 2 - math.log(2 * math.pi) / 2 - 2 * math.log(-x)
    return math.log(x * math.erfc(-x / math.sqrt(2)) / 2 + math.exp(-x * x / 2) / math.sqrt(2 * math.pi))


class Fit:
    """One function with the weight of each candidate."""

    def __init__(self, function, greatest_load):
        self.function = function
        centers = [
            greatest_load * (LEAST_CENTER + (GREATEST_CENTER - LEAST_CENTER) * i / (CENTERS - 1))
            for i in range(CENTERS)
        ]
        ratio = GREATEST_SPREAD / LEAST_SPREAD
        spreads = [greatest_load * LEAST_SPREAD * ratio ** (i / (SPREADS - 1)) for i in range(SPREADS)]
        self.candidates = [(center, spread) for center in centers for spread in spreads]
        self.criticals = [self.critical(*candidate) for candidate in self.candidates]
        self.weights = [0.0] * len(self.candidates)

    def log_loss(self, load, center, spread):
        """The logarithm of the packets that are lost in a second."""
        here, zero = self.function((load - center) / spread), self.function(-center / spread)
        return math.log(spread) + here + math.log1p(-math.exp(min(zero - here, -1e-15)))

    def critical(self, center, spread):
        low, high = center * 1e-3, center + 2 * spread
        for _ in range(40):
            middle = (low + high) / 2
            if self.log_loss(middle, center, spread) - math.log(middle) > math.log(TARGET):
                high = middle
            else:
                low = middle
        return low

    def learn(self, seconds, load, lost):
        """Losses come in bursts: their number has a geometric distribution rather than Poisson's."""
        for i, candidate in enumerate(self.candidates):
            mean = self.log_loss(load, *candidate) + math.log(seconds)
            more = mean if mean > FAR else math.log1p(math.exp(mean))
            self.weights[i] += lost * mean - (lost + 1) * more

    def estimate(self):
        """Mean and variance of the critical load."""
        most = max(self.weights)
        shares = [math.exp(weight - most) for weight in self.weights]
        whole = sum(shares)
        mean = sum(share * each for share, each in zip(shares, self.criticals, strict=True)) / whole
        variance = sum(share * (each - mean) ** 2 for share, each in zip(shares, self.criticals, strict=True)) / whole
        return mean, variance


def together(estimates):
    """Mean and standard deviation of estimates of equal worth."""
    mean = sum(each for each, _ in estimates) / len(estimates)
    return mean, math.sqrt(sum(variance + (each - mean) ** 2 for each, variance in estimates) / len(estimates))


class Soaking:
    """A soak that goes on by one trial at a time. `trial(seconds, load)` gives an Outcome; `greatest_load` is what the
    gateway forwards under overload."""

    def __init__(self, trial, how, greatest_load):
        self.trial, self.how, self.greatest = trial, how, greatest_load
        self.fits = [Fit(function, greatest_load) for function in (log_stretch, log_erf)]
        self.loads, self.spent, self.number = [], 0.0, 0
        self.mean, self.deviation = greatest_load * 0.9, greatest_load * 0.1

    def step(self):
        """One trial more; False: the time was over before it."""
        if self.spent >= self.how.seconds:
            return False
        seconds = self.how.first_trial_seconds + self.number * self.how.trial_growth
        # Loads alternate below, at and above the estimate. No load repeats.
        load = self.mean + (self.number % 3 - 1) * self.deviation
        load = min(max(load, self.greatest * 0.05), self.greatest * GREATEST_CENTER)
        while self.loads and self.loads[bisect.bisect_left(self.loads, load) % len(self.loads)] == load:
            load *= 1 - 1e-6
        bisect.insort(self.loads, load)
        outcome = self.trial(seconds, load)
        for fit in self.fits:
            fit.learn(outcome.seconds or seconds, load, outcome.lost)
        self.mean, self.deviation = together([fit.estimate() for fit in self.fits])
        self.spent += seconds
        self.number += 1
        return True

    def found(self):
        rates = {"plr_pps": self.mean, "plr_stdev_pps": self.deviation}
        return rates | {"plr_trials": self.number, "plr_seconds": self.spent}


def soak(trial, how, greatest_load):
    """{"plr_pps", "plr_stdev_pps", "plr_trials", "plr_seconds"}."""
    soaking = Soaking(trial, how, greatest_load)
    while soaking.step():
        pass
    return soaking.found()
