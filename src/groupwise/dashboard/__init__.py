"""A run's record as a web page: one file without a network, or served live over loopback."""

from groupwise.dashboard.report import write_report as write_report
