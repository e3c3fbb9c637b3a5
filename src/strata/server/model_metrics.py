"""What happened to models, as families of Prometheus."""

from collections.abc import Iterator, Mapping
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from strata.server.engine_metrics import gauge
from strata.server.loader import Tally

Key = TypeVar("Key", bound=tuple[str, ...])


class ModelCounters(Collector):
    """Loads, ends and who waits for them."""

    def __init__(self, states: Mapping[str, str], waiting: int, tally: Tally) -> None:
        """`states` are those of all models by name, `waiting` counts who waits for another one than the loaded."""
        self._states = states
        self._waiting = waiting
        self._tally = tally

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        tally = self._tally
        yield gauge("strata_requests_waiting_for_model", "Requests that wait for another model.", self._waiting)
        loaded = GaugeMetricFamily("strata_model_loaded", "Whether the model answers now.", labels=["model"])
        for name, state in self._states.items():
            loaded.add_metric([name], float(state == "loaded"))
        yield loaded
        yield labelled("strata_model_loads", "Loads that came to an end, by how.", ("model", "outcome"), tally.loads)
        yield labelled("strata_model_unloads", "Models that were unloaded, by why.", ("model", "reason"), tally.unloads)
        seconds = {(name,): value for name, value in tally.load_s.items()}
        yield labelled("strata_model_load_seconds", "Seconds of all loads.", ("model",), seconds)


def labelled(name: str, text: str, labels: tuple[str, ...], values: Mapping[Key, float]) -> CounterMetricFamily:
    """A counter by several labels."""
    family = CounterMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(list(key), float(value))
    return family
