"""Tests of `app.agent`, mirroring it."""
