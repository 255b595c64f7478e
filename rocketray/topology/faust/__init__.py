"""The parts of Faust's transport interface that we replace."""
