"""Callbacks for options: collapse warnings, regime information, figures."""
