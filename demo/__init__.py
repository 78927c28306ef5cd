"""`make demo`: a real classifier as a deployed model against a real service."""
