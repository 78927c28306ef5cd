"""What the door counts about itself, for Prometheus; it goes nowhere unless somebody asks."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from service.admission import Admission

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Meters:
    """Counters of one app; each app has its own, so that tests do not share them."""

    def __init__(self, admission: Admission) -> None:
        self.registry = CollectorRegistry()
        labels = ("operation", "status")
        self.requests = Counter(
            "calibrant_requests", "Requests answered.", labels, registry=self.registry
        )
        self.seconds = Histogram(
            "calibrant_request_seconds",
            "Time to answer.",
            ("operation",),
            buckets=SECONDS,
            registry=self.registry,
        )
        in_hand = Gauge(
            "calibrant_body_bytes_in_hand", "Request bodies being read.", registry=self.registry
        )
        in_hand.set_function(lambda: admission.bytes_in_hand)

    def answered(self, operation: str, status: int, seconds: float) -> None:
        """Count one request."""
        self.requests.labels(operation, str(status)).inc()
        self.seconds.labels(operation).observe(seconds)
