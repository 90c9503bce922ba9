"""Callbacks that set and measure speed: compile, threads, throughput, GPU."""
