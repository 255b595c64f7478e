"""The Faust transport for stock (unmodified) Faust apps."""
