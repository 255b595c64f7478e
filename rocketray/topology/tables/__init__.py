"""Tables: Faust's, with changelogs in topics of ours and an owner for each queue."""
