"""Why a group got a message, or did not: facts, causes and the explanation."""
