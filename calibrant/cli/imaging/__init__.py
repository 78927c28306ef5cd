"""Scoring of images: a manifest of cases, each reduced to sums of voxels with equal scores and ratings."""
