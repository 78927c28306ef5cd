"""`make demo`: a real classifier, played as a deployed model against a real service."""
