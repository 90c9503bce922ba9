"""Tests of options written by hand and of what watches options, one file a module of `modules.sac_options`."""
