"""Metrics in Prometheus' text format, through its official client.

Source: https://prometheus.io/docs/instrumenting/exposition_formats
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from lakegate import __version__
from lakegate.telemetry.metrics import BUCKETS, OVERFLOW, Metric, Sample, by_metric

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


def text(samples: Iterable[Sample]) -> str:
    """Return metrics in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_SampleCollector(tuple(samples)))
    return generate_latest(registry).decode()


class _SampleCollector(Collector):
    def __init__(self, samples: Sequence[Sample]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Family]:
        """Yield the metrics."""
        build = GaugeMetricFamily(
            "lakegate_build_info", "The version of lakegate that wrote these metrics.", labels=["version"]
        )
        build.add_metric([__version__], 1)
        yield build
        for metric, samples in by_metric(self._samples):
            yield _histogram(metric, samples) if metric.kind == "histogram" else _plain(metric, samples)


def _plain(metric: Metric, samples: Sequence[Sample]) -> Family:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.text, labels=list(metric.labels))
    for sample in sorted(samples):
        family.add_metric([value for _, value in sample.labels], sample.value)
    return family


def _histogram(metric: Metric, samples: Sequence[Sample]) -> HistogramMetricFamily:
    family = HistogramMetricFamily(metric.name, metric.text, labels=list(metric.labels))
    sums = {sample.labels: sample.value for sample in samples if sample.name.endswith("_sum")}
    for labels, total in sorted(sums.items()):
        counted = {
            sample.labels[-1][1]: sample.value
            for sample in samples
            if sample.name.endswith("_bucket") and sample.labels[:-1] == labels
        }
        running, buckets = 0.0, []
        for bound in (*map(str, BUCKETS), OVERFLOW):
            running += counted.get(bound, 0.0)
            buckets.append((bound, running))
        family.add_metric([value for _, value in labels], buckets, sum_value=total)
    return family
