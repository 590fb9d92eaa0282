"""Probes: what a target forward over n tokens costs on this machine, measured before anything is compared.

Predictions and explanations read a probe (`record`, `files`, `reading`); they never measure. Who measures: `sweep`
through the C interface of llama.cpp, and `served` through a server's synthetic acceptance, with wider intervals.
"""
