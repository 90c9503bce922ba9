"""Tests of written-out updates, one file a module of `modules.written_out`: each is held to the readable one."""
