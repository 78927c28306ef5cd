"""Data of the demo: two classifiers of handwritten digits, degraded images, and raters who disagree.

The images (8x8 digits) and the trained models are real. The models were trained on clean images only. The
deployed camera blurs and adds noise, more of it towards the end, so that the models err and stay confident.
Ratings are simulated: each rater rates the degraded image with a model that was trained on degraded images,
so that raters disagree if an image is ambiguous.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from scipy.special import log_softmax, softmax
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

Floats = NDArray[np.float64]

N_CLASSES = 10
N_TRAINING = 600
CAPTURES = 4  # images of each digit, one after the other: they are one unit
BURST = 1e-6  # between them, as a share of the simulated time: about one second
SKILLS = (1.0, 0.9, 1.2, 0.8, 1.1)  # sharpness of each of the five raters


@dataclass(frozen=True)
class Deployment:
    """Images, predictions and ratings of the deployed models, in order of time."""

    digit: NDArray[np.int64]  # the handwritten digit: the unit
    when: Floats  # time as a share of the simulated time, in [0, 1)
    probabilities: Floats  # (n, 10) of the overconfident network
    logistic: Floats  # (n, 10) of the second model
    ratings: list[list[int]]  # ragged, 3 to 5 raters each


def play_deployment(seed: int = 7, worn_from: float = 0.5) -> Deployment:
    """Train both models, degrade the other images, simulate the raters.

    `worn_from` is the share of the simulated time after which the camera is out of focus.
    """
    rng = np.random.default_rng(seed)
    images, truth = load_digits(return_X_y=True)
    order = rng.permutation(len(images))
    images, truth = images[order] / 16.0, truth[order]
    network, logistic = _train(images[:N_TRAINING], truth[:N_TRAINING], seed)

    n_digits = len(images) - N_TRAINING
    digit = np.repeat(np.arange(N_TRAINING, len(images)), CAPTURES)
    burst = np.tile(np.arange(CAPTURES) * BURST, n_digits)
    when = np.repeat(np.sort(rng.random(n_digits) * (1 - CAPTURES * BURST)), CAPTURES) + burst
    blur = rng.uniform(0.1, 0.7, len(digit)) + np.where(when >= worn_from, 0.5, 0.0)
    worn = _wear(images[digit], blur, rng)

    reader = _reader(images[:N_TRAINING], truth[:N_TRAINING], rng)
    return Deployment(
        digit=digit.astype(np.int64),
        when=when,
        probabilities=softmax(_logits(network, worn), axis=1),
        logistic=softmax(logistic.decision_function(worn), axis=1),
        ratings=_rate(reader.predict_log_proba(worn), truth[digit], rng),
    )


def _train(
    images: Floats, truth: NDArray[np.int64], seed: int
) -> tuple[MLPClassifier, LogisticRegression]:
    network = MLPClassifier(
        (96,),
        alpha=0.0,
        learning_rate_init=0.01,
        max_iter=400,
        tol=0.0,
        n_iter_no_change=400,
        random_state=seed,
    )
    with warnings.catch_warnings():  # overtrained on purpose, which makes it overconfident
        warnings.simplefilter("ignore", ConvergenceWarning)
        network.fit(images, truth)
        logistic = LogisticRegression(C=1000.0, max_iter=500).fit(images, truth)
    return network, logistic


def _reader(
    images: Floats, truth: NDArray[np.int64], rng: np.random.Generator
) -> LogisticRegression:
    """Train the model behind the raters on degraded images, so that it knows which are ambiguous."""
    many = np.repeat(images, 8, axis=0)
    worn = _wear(many, rng.uniform(0.1, 1.0, len(many)), rng)
    return LogisticRegression(C=1.0, max_iter=300).fit(worn, np.repeat(truth, 8))


def _wear(images: Floats, blur: Floats, rng: np.random.Generator) -> Floats:
    """Blur each image by its own width, add a camera's noise."""
    blurred = [
        gaussian_filter(image.reshape(8, 8), width).ravel()
        for image, width in zip(images, blur, strict=True)
    ]
    return np.clip(np.asarray(blurred) + rng.normal(0.0, 0.12, images.shape), 0.0, 1.0)


def _logits(network: MLPClassifier, images: Floats) -> Floats:
    """Return logits: a softmax in single precision would round small probabilities to zero."""
    hidden = np.maximum(images @ network.coefs_[0] + network.intercepts_[0], 0.0)
    return np.asarray(hidden @ network.coefs_[1] + network.intercepts_[1])


def _rate(
    log_reading: Floats, truth: NDArray[np.int64], rng: np.random.Generator
) -> list[list[int]]:
    """Draw ratings of three to five raters per image, each from their own reading of it."""
    n = len(truth)
    leaning = log_reading + 2.0 * np.eye(N_CLASSES)[truth]  # raters know digits, too
    answers = np.empty((n, len(SKILLS)), dtype=np.int64)
    for rater, skill in enumerate(SKILLS):
        cumulative = np.exp(log_softmax(skill * leaning, axis=1)).cumsum(axis=1)
        answers[:, rater] = (rng.random((n, 1)) > cumulative[:, :-1]).sum(axis=1)
    present = rng.permuted(np.tile(np.arange(len(SKILLS)), (n, 1)), axis=1)
    seen = rng.integers(3, len(SKILLS) + 1, n)
    return [sorted(answers[i, present[i, : seen[i]]].tolist()) for i in range(n)]
