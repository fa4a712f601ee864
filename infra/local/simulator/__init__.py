"""The provider simulator: batch APIs over HTTP with deterministic answers, faults, a virtual clock and a journal.

One process, one clock, one scenario format and one journal for every provider; each provider is a package beside this
file (`openai`) that brings its own routes.
"""
