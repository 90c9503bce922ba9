"""Tests of written-out updates, one file a module of `modules.manual_backward`: each is held to the readable one."""
