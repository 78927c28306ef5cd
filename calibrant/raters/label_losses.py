"""The squared loss under label uncertainty and its parts, from a view.

L = EL + IL = CL + RL and EL = CL + GL: epistemic, irreducible, calibration, refinement and grouping loss, with
the bias that few votes and few rows bring taken away. Estimates may then fall below 0 by chance; they are never
clipped, or their mean would be wrong.

EL, IL and GL need two votes a prediction. By default they leave predictions with one vote out
(`single_vote=exclude`); `keep` leaves the uncorrected term of those in, as published code does, which biases EL
upwards. L, CL and RL read all predictions.

Source: Mimori, Sasada, Matsui, Sato, Diagnostic Uncertainty Calibration (AISTATS 2021), eqs. 5 to 14.
"""
