"""The shape of recommendations, in drift and alarms."""

from calibrant.results.recommendation import Recommendation as LibraryRecommendation
from calibrant_server.service.reads.response_models import part_of


class Recommendation(part_of(LibraryRecommendation)):  # type: ignore[misc]
    """Recommended action for the model's calibration."""
