"""Tables: Faust's, with changelog topics on the node and one owner per queue."""
