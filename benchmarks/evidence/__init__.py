"""The papers' claims tested on data with known truth, and the quality of estimators and calibrators."""
