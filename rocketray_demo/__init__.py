"""The demo on real data: the job of ``rocketray demo``, and the verification of its result."""
