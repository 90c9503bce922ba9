"""Dynamical systems as on-device environments: vector fields and observation models."""
