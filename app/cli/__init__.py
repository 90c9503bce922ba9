"""Run Lightning's verbs (fit, validate, test, predict), with one-sentence errors."""
