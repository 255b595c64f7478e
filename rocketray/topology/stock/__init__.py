"""The transport for stock Faust apps."""
