"""The version of the decision code. It changes whenever the same inputs may give another decision."""

CODE_VERSION = "core-18"
