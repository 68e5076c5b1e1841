"""Statistics of the bench: medians, 95 % bootstrap intervals and verdicts, as bench/common/paired.h
makes them. Pure."""

import random
import statistics

RESAMPLES = 4000
SELF_SPREAD = 0.03  # of the limit against its own previous run, for a conclusive measurement


def _interval(draw):
    """95 % interval of what `draw` makes of resampled values."""
    generator = random.Random(1)
    values = sorted(draw(generator) for _ in range(RESAMPLES))
    return [values[RESAMPLES * 25 // 1000], values[RESAMPLES * 975 // 1000 - 1]]


def _resampled(generator, values):
    return statistics.median(generator.choices(values, k=len(values)))


def median_interval(values):
    return _interval(lambda generator: _resampled(generator, values))


def ratios(values, limits):
    if len(values) != len(limits):
        raise ValueError(f"{len(values)} values and {len(limits)} limits are no pairs")
    return [value / limit for value, limit in zip(values, limits)]


def compared(values, limits):
    """Values and limits of the same pairs, in the order of their runs."""
    of_pairs = ratios(values, limits)
    of_limit = ratios(limits[1:], limits[:-1])
    return {"value": statistics.median(values), "limit": statistics.median(limits),
            "ratio_to_limit": statistics.median(of_pairs),
            "ratio_interval": median_interval(of_pairs),
            "limit_self_interval": median_interval(of_limit), "pairs": len(values)}


def compared_apart(values, limits):
    """Values and limits that were not measured in turns: the ratio of their medians."""
    def draw(generator):
        return _resampled(generator, values) / _resampled(generator, limits)
    value, limit = statistics.median(values), statistics.median(limits)
    return {"value": value, "limit": limit, "ratio_to_limit": value / limit,
            "ratio_interval": _interval(draw), "pairs": len(values)}


def verdict(found, pass_ratio):
    """`pass` if the whole interval is at or below the bound, `fail` if it is above."""
    low, high = found["ratio_interval"]
    return "pass" if high <= pass_ratio else "fail" if low > pass_ratio else "inconclusive"


def verdict_if_quiet(found, pass_ratio):
    """The same, for a limit that has to repeat itself. Noise hides no missed bound."""
    low, high = found["limit_self_interval"]
    quiet = low >= 1 - SELF_SPREAD and high <= 1 + SELF_SPREAD
    made = verdict(found, pass_ratio)
    return "inconclusive" if made == "pass" and not quiet else made


def verdict_of_lower(found, pass_ratio):
    """`pass` if the lower end of the interval is at or below the bound."""
    return "pass" if found["ratio_interval"][0] <= pass_ratio else "fail"
